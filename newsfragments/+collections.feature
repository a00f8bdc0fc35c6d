A request costs about a sixth less, and full garbage collections no longer hold up streams: what lives as long as the router is left out of them.

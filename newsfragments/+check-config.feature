``pypto-router check-config FILE`` shows what a configuration file means, or everything that is wrong with it at once, each problem with line and column.

"""How each router under test is started: ours, and its peers with the settings that make them fastest."""

from __future__ import annotations

import http.client
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import ROOT, Children, Unavailable, free_port, tree

PEERS = ROOT / "bench" / ".peers"
OURS = Path(sys.executable).parent / "pypto-serving-router"
APT = "apt-get install -y --no-install-recommends"


@dataclass
class Engine:
    """A running router: where it listens, which processes are charged for it, a replica behind it.

    Straight to the stub there is no process to charge.
    """

    name: str
    port: int
    replica: int
    pids: list[int] = field(default_factory=list)


Starter = Callable[[Children, str, list[int], Path], Engine]


def wait_until_it_serves(process: subprocess.Popen[str], port: int, name: str, seconds: float = 60) -> None:
    """Return when a POST through *port* is answered 200; :raises Unavailable: when none is in time."""
    deadline = time.monotonic() + seconds
    body = json.dumps({"model": "bench", "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]})
    answer = "nothing"
    while time.monotonic() < deadline and process.poll() is None:
        try:
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            link.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            reply = link.getresponse()
            reply.read()
            if reply.status == 200:
                return
            answer = f"status {reply.status}"
        except (OSError, http.client.HTTPException) as error:
            answer = str(error)
        time.sleep(0.1)
    if process.poll() is not None:
        raise Unavailable(f"{name} ended with status {process.returncode}; see bench/out/logs/{name}.log.")
    raise Unavailable(
        f"{name} did not serve within {seconds:.0f} s (last answer: {answer}); see bench/out/logs."
    )


def launch(family: Children, name: str, argv: list[str], port: int, replicas: list[int]) -> Engine:
    """Start *argv* and wait until it serves."""
    process = family.start(name, argv)
    wait_until_it_serves(process, port, name)
    return Engine(name, port, replicas[0], tree(process.pid))


def straight(family: Children, name: str, replicas: list[int], work: Path) -> Engine:
    """No router: what the stub and the load generator do by themselves."""
    return Engine(name, replicas[0], replicas[0])


def ours(command: list[str]) -> Starter:
    """This router, or another build of it, by its command line."""

    def start(family: Children, name: str, replicas: list[int], work: Path) -> Engine:
        port, config = free_port(), work / f"{name}.json"
        fleet = [{"host": "127.0.0.1", "port": replica} for replica in replicas]
        config.write_text(json.dumps({"replicas": fleet}))
        flags = ["--replicas", str(config), "--host", "127.0.0.1", "--port", str(port)]
        return launch(family, name, [*command, *flags], port, replicas)

    return start


NGINX = """daemon off; worker_processes 1; worker_rlimit_nofile 65536; pid {work}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 32768; }}
http {{
  access_log off; client_max_body_size 0; client_body_buffer_size 1m; keepalive_requests 1000000000;
  client_body_temp_path {work}/nginx-body; proxy_temp_path {work}/nginx-proxy;
  fastcgi_temp_path {work}/nginx-f; uwsgi_temp_path {work}/nginx-u; scgi_temp_path {work}/nginx-s;
  upstream replicas {{ {balance} {servers} keepalive 1024; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://replicas; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_read_timeout 3600s;
    }}
  }}
}}
"""

HAPROXY = """global
  nbthread 1
  maxconn 8192
defaults
  mode http
  option http-no-delay
  http-reuse always
  balance roundrobin
  timeout connect 5s
  timeout client 3600s
  timeout server 3600s
frontend bench
  bind 127.0.0.1:{port} backlog 4096
  default_backend replicas
backend replicas
{servers}
"""


def program(name: str, package: str) -> str:
    """Where a peer's program is; :raises Unavailable: with the command that installs it."""
    found = shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        raise Unavailable(f"{name} is not installed here; install it with: {APT} {package}")
    return found


def nginx(family: Children, name: str, replicas: list[int], work: Path, balance: str = "") -> Engine:
    """Nginx with one worker, unbuffered, upstream connections kept; in turn, or as ``balance`` says."""
    port, config = free_port(), work / "nginx.conf"
    servers = " ".join(f"server 127.0.0.1:{replica};" for replica in replicas)
    config.write_text(NGINX.format(work=work, port=port, balance=balance, servers=servers))
    return launch(family, name, [program("nginx", "nginx-light"), "-c", str(config)], port, replicas)


def haproxy(family: Children, name: str, replicas: list[int], work: Path) -> Engine:
    """Haproxy with one thread."""
    port, config = free_port(), work / "haproxy.cfg"
    servers = "\n".join(f"  server r{i} 127.0.0.1:{replica}" for i, replica in enumerate(replicas))
    config.write_text(HAPROXY.format(port=port, servers=servers))
    return launch(family, name, [program("haproxy", "haproxy"), "-db", "-f", str(config)], port, replicas)


def environment(requirement: str) -> Path:
    """The Python of a throw-away virtualenv that holds one peer, made when it is missing."""
    place = PEERS / requirement.replace("==", "-")
    python = place / "bin" / "python"
    if not (place / "complete").exists():
        print(f"installing {requirement} into {place.relative_to(ROOT)}", flush=True)
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
            pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
            subprocess.run([*pip, requirement], check=True, timeout=600)
        except (subprocess.SubprocessError, OSError) as error:
            raise Unavailable(f"{requirement} cannot be installed from the package index: {error}") from error
        (place / "complete").touch()
    return python


def rust_router(requirement: str, module: str, policy: str, level: str, *more: str) -> Starter:
    """vllm-router or sglang-router: the same command line, apart from the name of the log level."""

    def start(family: Children, name: str, replicas: list[int], work: Path) -> Engine:
        port = free_port()
        argv = [str(environment(requirement)), "-m", module, "--host", "127.0.0.1", "--port", str(port)]
        argv += ["--policy", policy, "--log-level", level, "--prometheus-port", str(free_port()), *more]
        argv += ["--worker-urls", *(f"http://127.0.0.1:{replica}" for replica in replicas)]
        return launch(family, name, argv, port, replicas)

    return start


def vllm_router(version: str, policy: str, *more: str) -> Starter:
    """Vllm-router of one version under one policy."""
    return rust_router(f"vllm-router=={version}", "vllm_router.launch_router", policy, "warning", *more)


STARTERS: dict[str, Starter] = {
    "straight": straight,
    "us": ours([str(OURS)]),
    "nginx": nginx,
    "haproxy": haproxy,
    "vllm-rr": vllm_router("0.1.16", "round_robin"),
    "vllm-ch": vllm_router("0.1.16", "consistent_hash"),
    "vllm-new-rr": vllm_router("0.1.17", "round_robin"),
    "vllm-new-ch": vllm_router("0.1.17", "consistent_hash"),
    "sglang-rr": rust_router("sglang-router==0.3.2", "sglang_router.launch_router", "round_robin", "warn"),
}
WIRE = ["straight", "us", "nginx"]


def starters(names: list[str], variants: list[str]) -> dict[str, Starter]:
    """The named engines, then each variant ``NAME=COMMAND`` of ours."""
    chosen: dict[str, Starter] = {}
    for name in names:
        if name not in STARTERS:
            raise Unavailable(f"There is no engine {name!r}; there are: {', '.join(STARTERS)}.")
        chosen[name] = STARTERS[name]
    for variant in variants:
        name, _, command = variant.partition("=")
        if not command:
            raise Unavailable(f"A variant is NAME=COMMAND, not {variant!r}.")
        chosen[name] = ours(shlex.split(command))
    return chosen

"""Ciranda over TCP beside gloo and Open MPI: over loopback, and between two hosts with a link of a known rate.

    python benchmarks/tcp.py loopback --mpi openmpi=peers/openmpi
    python benchmarks/tcp.py link --rate 1gbit --rate 10gbit
    python benchmarks/tcp.py link --local 2    # ranks at each end, which share memory
    python benchmarks/tcp.py link --links 2    # of which Ciranda uses all, its peers the first
    python benchmarks/tcp.py link --hosts 8 --collectives broadcast    # each with a link to a switch
    python benchmarks/tcp.py link --run "benchmarks/train_step.py --only transformer"    # by a rank at each end
    python benchmarks/tcp.py link --delay-ms 1 --loss 1e-4    # one way, and of packets, by the program relay

Everything happens in network namespaces of its own, which go with the processes in them: nothing of this machine's
network is touched. ``--control`` is the congestion control that sockets get there unless they ask for another, as
Ciranda's do. A link is a pair of virtual interfaces, each behind a token bucket (tbf); one with a delay or losses has
a relay between them (cpp/relay.cc), which is built with the C++ benchmarks and takes a part of a core. A rank that is
alone at its end sends as many bytes as the result has, so that the share of the rate can be told. Needs root, and
``unshare``, ``nsenter``, ``ip`` and ``tc``.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import peers

from ciranda.bench.cli import describe
from ciranda.bench.plan import Plan, format_size

_CONTROL = "/proc/sys/net/ipv4/tcp_congestion_control"
_OVER_TCP = {
    "CIRANDA_SHARED_MEMORY": "0",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_btl_tcp_if_include": "lo",
}


def main() -> int:
    """Measure, print the tables. The exit code is 1 if any element was wrong."""
    args = parse(sys.argv[1:])
    if not args.inside:
        return subprocess.call(["unshare", "--net", sys.executable, __file__, "--inside", *sys.argv[1:]])
    run("ip", "link", "set", "lo", "up")
    Path(_CONTROL).write_text(args.control)
    runs = over_loopback(args) if args.where == "loopback" else over_links(args)
    if args.run:
        return 0
    plan = Plan(np=args.np, peers=("gloo",), pin=args.pin)
    results = {
        "meta": {**describe(plan), "control": args.control, "language": "C++" if args.cpp else "Python"},
        "runs": runs,
    }
    print(peers.table(results))
    for found in runs:
        if "rate" in found and args.np == 2:
            print(shares(found))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return int(any(told["n_wrong"] for found in runs for row in found["rows"] for told in row["systems"].values()))


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line; what peers.measure() wants besides is the same for all."""
    parser = argparse.ArgumentParser(description="Ciranda over TCP beside its peers.")
    parser.add_argument("where", choices=["loopback", "link"])
    parser.add_argument("--rate", action="append", default=[], help="of the link, as tc takes it")
    parser.add_argument("--hosts", type=int, default=2, help="more than two have a link each to a switch")
    parser.add_argument("--links", type=int, default=1, help="between two hosts, each of the rate")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="one way")
    parser.add_argument("--loss", type=float, default=0.0, help="the share of packets that do not arrive")
    parser.add_argument("--relay", type=Path, help="the program; by default that of --cpp, or of build/bench")
    parser.add_argument("--run", type=shlex.split, metavar="SCRIPT", help="in place of the calls; prints for itself")
    parser.add_argument("--local", type=int, default=1, help="ranks at each end of the link")
    parser.add_argument("--control", default="reno", help="congestion control; a namespace may not get all")
    parser.add_argument("--collectives", default="allreduce", help="see peers.py")
    parser.add_argument("--sizes", default="4,1M,64M", help="of the result")
    parser.add_argument("--peers", default="gloo")
    parser.add_argument("--mpi", action="append", default=[], metavar="NAME=FOLDER", help="see peers.py; loopback only")
    parser.add_argument("--seconds", type=float, default=1.0, help="at most, for each size and system")
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--cpp", type=Path, metavar="BUILD", help="measure from C++, see peers.py")
    parser.add_argument("--pin", action="store_true", help="bind rank r to core r")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    args.np = 2 if args.where == "loopback" else args.hosts * args.local
    args.dtype, args.until_both = "float32", 0.0
    if args.hosts > 2 and (args.links > 1 or args.delay_ms or args.loss):
        parser.error("several links, a delay and losses are for two hosts")
    return args


def over_loopback(args: argparse.Namespace) -> list[dict[str, Any]]:
    mpis: dict[str, str | None] = dict(text.split("=", 1) for text in args.mpi)
    network = peers.Network(settings=_OVER_TCP)
    return [
        peers.measure(args, args.peers.split(",") if args.peers else [], mpi, folder, network)
        for mpi, folder in (mpis or {"no MPI": None}).items()
    ]


def over_links(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A run for each rate. All hosts but the first are network namespaces of their own, at other ends of links."""
    others = [start_host(args.control) for _ in range(args.hosts - 1 + (args.hosts > 2))]
    ends: list[list[str]] = [[], *(enter(process) for process in others[: args.hosts - 1])]
    relays: list[subprocess.Popen[bytes]] = []
    try:
        if args.hosts == 2:
            wires = [f"wire{link}" for link in range(args.links)]
            relays += [relay for link, wire in enumerate(wires) for relay in join_two(args, link, wire, others[0])]
            limited = [(end, wire) for wire in wires for end in ends]
        else:
            wires = ["wire0"]
            limited = join_by_switch(ends, others[:-1], others[-1])
        of_rank = {
            rank: [*ends[rank // args.local], "env", *labels(f"host{rank // args.local}")] for rank in range(args.np)
        }
        settings = {"GLOO_SOCKET_IFNAME": wires[0], "CIRANDA_INTERFACE": ",".join(wires)}
        network = peers.Network(address(0, 0), of_rank, settings)
        found = []
        for rate in args.rate or ["1gbit"]:
            for end, wire in limited:
                bucket = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "20ms")
                run(*end, "tc", "qdisc", "replace", "dev", wire, *bucket)
            what = f"a link of {rate}" if args.links == 1 else f"{args.links} links of {rate}"
            what += f" to each of {args.hosts} hosts" if args.hosts > 2 else ""
            what += f", {args.delay_ms:g} ms one way" if args.delay_ms else ""
            what += f", {args.loss:g} lost" if args.loss else ""
            if args.run:
                print(f"# {what}", flush=True)
                if any(peers.run_ranks(args.np, [sys.executable, *args.run], None, network)):
                    raise SystemExit("tcp: a rank failed")
                continue
            names = args.peers.split(",") if args.peers else []
            found.append({"rate": rate, **peers.measure(args, names, what, None, network)})
        return found
    finally:
        for process in (*relays, *others):
            process.kill()
            process.wait()


def start_host(control: str) -> subprocess.Popen[bytes]:
    """A process in a network namespace of its own."""
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()  # its namespace is there
    run(*enter(holder), "ip", "link", "set", "lo", "up")
    run(*enter(holder), sys.executable, "-c", f"open('{_CONTROL}', 'w').write('{control}')")
    return holder


def enter(host: subprocess.Popen[bytes]) -> list[str]:
    """What stands in front of a command that is to run there."""
    return ["nsenter", "--net", "--target", str(host.pid)]


def address(link: int, host: int) -> str:
    return f"10.91.{1 + link}.{1 + host}"


def join_two(
    args: argparse.Namespace, link: int, wire: str, other: subprocess.Popen[bytes]
) -> list[subprocess.Popen[bytes]]:
    """Make a link between this host and the other; returns the relays that are a part of it."""
    relays = []
    if args.delay_ms or args.loss:
        relays.append(start_relay(args, wire, str(other.pid)))
    else:
        run("ip", "link", "add", wire, "type", "veth", "peer", "name", wire, "netns", str(other.pid))
    for host, end in enumerate([[], enter(other)]):
        run(*end, "ip", "address", "add", f"{address(link, host)}/24", "dev", wire)
        run(*end, "ip", "link", "set", wire, "up")
    return relays


def join_by_switch(
    ends: list[list[str]], others: list[subprocess.Popen[bytes]], switch: subprocess.Popen[bytes]
) -> list[tuple[list[str], str]]:
    """Make a link from each host to the switch. Returns both ends of each: where, and the interface."""
    run(*enter(switch), "ip", "link", "add", "bridge", "type", "bridge")
    run(*enter(switch), "ip", "link", "set", "bridge", "up")
    both = []
    for host, (end, pid) in enumerate(zip(ends, [os.getpid(), *(other.pid for other in others)], strict=True)):
        port = f"port{host}"
        in_host = ["peer", "name", "wire0", "netns", str(pid)]
        run(*enter(switch), "ip", "link", "add", port, "type", "veth", *in_host)
        run(*enter(switch), "ip", "link", "set", port, "master", "bridge", "up")
        run(*end, "ip", "address", "add", f"{address(0, host)}/24", "dev", "wire0")
        run(*end, "ip", "link", "set", "wire0", "up")
        both += [(end, "wire0"), (enter(switch), port)]
    return both


def start_relay(args: argparse.Namespace, wire: str, other: int) -> subprocess.Popen[bytes]:
    """Make the interfaces of a link with a delay or losses, here and in the network of the process `other`."""
    program = args.relay or (args.cpp or Path("build/bench")) / "benchmarks" / "cpp" / "relay"
    character = ["--delay-us", str(round(1000 * args.delay_ms)), "--loss", str(args.loss)]
    command = [program, str(os.getpid()), str(other), "--name", wire, *character]
    relay = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert relay.stdout is not None
    if relay.stdout.readline() != b"ready\n":
        raise SystemExit("tcp: the relay did not start")
    return relay


def labels(host: str) -> list[str]:
    """What makes a host of its own: only the ranks of one label share memory."""
    return [f"CIRANDA_HOST={host}", f"CIRANDA_HOST_ID={host}"]


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def shares(found: dict[str, Any]) -> str:
    """How much of the link's rate each system used, by size."""
    unit = {"gbit": 1e9, "mbit": 1e6}
    bits = float(found["rate"][:-4]) * unit[found["rate"][-4:]]
    lines = []
    for row in found["rows"]:
        told = ", ".join(
            f"{name} {row['n_bytes'] * 8 / (timed['median_us'] / 1e6) / bits:.3f}"
            for name, timed in row["systems"].items()
        )
        lines.append(f"# {format_size(row['n_bytes'])}: share of {found['rate']} each way: {told}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

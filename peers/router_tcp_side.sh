#!/bin/bash
# One side of the comparisons of `cargo xtask compare` that send TCP through a router between two virtual links, or to it. As root; it
# measures a round for each line "go SECONDS" on its standard input, and ends with that.
#
#     peers/router_tcp_side.sh WHO HOW CYCLES_A_SECOND WARMLANE
#
# WHO is kernel, or a path of `warmlane router`: best, xdp, tc or user; or tap, for `warmlane forward` between two TAP devices in place of the
# links, or tap-off, for the same without offloads, so with packets of 1,500 bytes. HOW says what iperf3 does:
#
# - through: one connection through the router, with the links' usual offloads, so packets of up to 64 KiB.
# - through-off: the same with `tx off` at both ends, so packets of 1,500 bytes with checksums.
# - local: one connection to the router itself, with usual offloads.
# - bridge, macvlan, vxlan: as through, but the router's interface towards the receiver is a bridge with the link as its port, a macvlan on
#   the link, or a tunnel through it.
#
# Counted are the time-stamp counter's cycles that go by for each KiB that arrives. The scheduler places everybody as it likes, the same
# for all sides.
set -euo pipefail
who=$1 how=$2 clock=$3 warmlane=$4
west=router-tcp-west-$$ middle=router-tcp-middle-$$ east=router-tcp-east-$$
work=$(mktemp -d)
router='' server=''
end() {
	if [ -n "$1" ]; then
		kill -TERM "$1" 2>/dev/null || true
		wait "$1" 2>/dev/null || true
	fi
}
finish() {
	end "$router"
	end "$server"
	local name
	for name in "$west" "$middle" "$east"; do ip netns delete "$name" 2>/dev/null || true; done
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM
fail() {
	echo "$who: $1" >&2
	cat "$work"/* >&2 2>/dev/null || true
	exit 1
}

# shellcheck source=links.sh
. "$(dirname "$0")/links.sh"
make_links
# The addresses of both ends.
make_ends() {
	ip -n "$west" address add 10.0.0.2/24 dev sender
	ip -n "$east" address add 10.0.1.2/24 dev receiver
	ip -n "$west" route add default via 10.0.0.1
	ip -n "$east" route add default via 10.0.1.1
}
case $who in
tap | tap-off)
	ip -n "$middle" link delete left
	ip -n "$middle" link delete right
	offloads=true
	if [ "$who" = tap-off ]; then offloads=false; fi
	cat >"$work/forward.toml" <<-END
		lanes = 1
		[[port]]
		name = "sender"
		driver = "tap:sender,offloads=$offloads"
		mac = "02:00:00:00:01:01"
		addresses = ["10.0.0.1/24"]
		[[port]]
		name = "receiver"
		driver = "tap:receiver,offloads=$offloads"
		mac = "02:00:00:00:01:02"
		addresses = ["10.0.1.1/24"]
		[[neighbour]]
		address = "10.0.0.2"
		mac = "02:00:00:00:00:01"
		port = "sender"
		[[neighbour]]
		address = "10.0.1.2"
		mac = "02:00:00:00:00:02"
		port = "receiver"
	END
	;;
*) make_ends ;;
esac
if [ "$how" = through-off ]; then
	ip netns exec "$west" ethtool -K sender tx off >/dev/null
	ip netns exec "$east" ethtool -K receiver tx off >/dev/null
fi
if [ "$who" = xdp ]; then
	# What is redirected to a virtual link is taken there only so.
	ip netns exec "$west" ethtool -K sender gro on
	ip netns exec "$east" ethtool -K receiver gro on
fi
# The router's interface towards the receiver.
out=right
case $how in
bridge | macvlan | vxlan)
	out=lan
	ip -n "$middle" address delete 10.0.1.1/24 dev right
	case $how in
	bridge)
		ip -n "$middle" link add lan type bridge
		ip -n "$middle" link set right master lan
		;;
	macvlan) ip -n "$middle" link add lan link right type macvlan mode bridge ;;
	vxlan)
		ip -n "$east" address delete 10.0.1.2/24 dev receiver
		ip -n "$middle" address add 10.0.9.1/24 dev right
		ip -n "$east" address add 10.0.9.2/24 dev receiver
		ip -n "$middle" link add lan type vxlan id 7 local 10.0.9.1 remote 10.0.9.2 dstport 4789 dev right
		ip -n "$east" link add lan type vxlan id 7 local 10.0.9.2 remote 10.0.9.1 dstport 4789 dev receiver
		ip -n "$east" address add 10.0.1.2/24 dev lan
		ip -n "$east" link set lan up
		;;
	esac
	ip -n "$middle" address add 10.0.1.1/24 dev lan
	ip -n "$middle" link set lan up
	ip -n "$east" route replace default via 10.0.1.1
	;;
esac
target=10.0.1.2 home=$east
if [ "$how" = local ]; then target=10.0.0.1 home=$middle; fi
ip netns exec "$home" iperf3 --server >"$work/server" 2>&1 </dev/null &
server=$!

# Hundredths of a second that the hypervisor took.
stolen() {
	local name fields
	read -r name fields </proc/stat
	# shellcheck disable=SC2086
	set -- $fields
	steal=$8
}
# Waits until it has said that.
await() {
	local tries
	for ((tries = 0; tries < 200; tries++)); do
		if grep -q "$1" "$work/router"; then return; fi
		sleep 0.05
	done
	fail "it doesn't start"
}
start_router() {
	# Whoever starts opens it a moment later, and what the last one has said is not to be taken for its own.
	: >"$work/router"
	case $who in
	kernel) ;;
	tap | tap-off)
		ip netns exec "$middle" "$warmlane" forward --idle latency --config "$work/forward.toml" >"$work/router" 2>&1 </dev/null &
		router=$!
		await "note: port 'receiver'"
		ip -n "$middle" link set sender netns "$west"
		ip -n "$middle" link set receiver netns "$east"
		ip -n "$west" link set sender address 02:00:00:00:00:01 up
		ip -n "$east" link set receiver address 02:00:00:00:00:02 up
		make_ends
		;;
	*)
		ip netns exec "$middle" "$warmlane" router left "$out" --path "$who" --socket "$work/socket" >"$work/router" 2>&1 </dev/null &
		router=$!
		await 'note: forwarding between'
		;;
	esac
}
round() {
	local seconds=$1 before steal length disturbed=""
	start_router
	stolen
	before=$steal
	# iperf3 knows whole seconds; the first tenths, in which the connection grows, don't count.
	ip netns exec "$west" iperf3 --client "$target" --time "$(awk "BEGIN { print int($seconds + 0.999) }")" --omit 1 --json >"$work/client" ||
		fail "iperf3 failed"
	stolen
	end "$router"
	router=''
	read -r bytes length < <(python3 -c '
import json, sys
total = json.load(open(sys.argv[1]))["end"]["sum_received"]
print(int(total["bytes"]), total["seconds"])' "$work/client")
	if ((bytes <= 0)); then fail "nothing arrived"; fi
	if awk "BEGIN { exit !(($steal - $before) / 100 > $length / 25) }"; then
		disturbed="the hypervisor took $(((steal - before) * 10)) ms"
	fi
	awk -v who="$who" -v bytes="$bytes" -v length_="$length" -v more="${disturbed:+: not counted, $disturbed}" \
		'BEGIN { printf "%s: %.2f Gbit/s%s\n", who, bytes * 8 / length_ / 1e9, more }' >&2
	awk -v bytes="$bytes" -v length_="$length" -v clock="$clock" -v disturbed="$disturbed" \
		'BEGIN { printf "{\"packets\":%.0f,\"cycles\":%.0f,\"disturbed\":\"%s\"}\n", bytes / 1024, length_ * clock, disturbed }'
}

echo ready
while read -r go seconds; do
	if [ "$go" = go ]; then round "$seconds"; fi
done

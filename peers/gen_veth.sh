#!/bin/bash
# Who fills a virtual link faster over AF_XDP: warmlane gen or testpmd txonly? They take turns, each for some seconds on
# the same CPU; what counts is what arrives at the link's other end, by the kernel's own counter. As root:
#
#     peers/gen_veth.sh [WARMLANE [ROUNDS [SECONDS [CPU]]]]
set -euo pipefail
warmlane=${1:-target/release/warmlane} rounds=${2:-5} seconds=${3:-3} cpu=${4:-1}
space=gen-veth-$$
# Both sides get huge pages: what lies across the border of smaller ones would be copied once more.
pages=$(cat /proc/sys/vm/nr_hugepages)
trap 'ip netns delete "$space" 2>/dev/null; sysctl -q -w vm.nr_hugepages="$pages"' EXIT
sysctl -q -w vm.nr_hugepages=$((pages + 64))
ip netns add "$space"
inside() { ip netns exec "$space" "$@"; }
inside sysctl -q -w net.ipv6.conf.default.disable_ipv6=1
inside ip link add near type veth peer name far
inside ip link set near up
inside ip link set far up

arrived() { inside cat /sys/class/net/far/statistics/rx_packets; }
# Packets a second that arrive while a command runs. The window opens half a second after the first packet, however long
# the command took to start, and is as long as the clock says.
rate() {
	local before begin end opened closed log
	log=$(mktemp)
	before=$(arrived)
	# Not by `inside`: of a function in the background the shell that runs it would get the signal, and the command live on.
	ip netns exec "$space" taskset --cpu-list "$cpu" "$@" >"$log" 2>&1 </dev/null &
	local process=$!
	for ((wait = 0; wait < 100; wait++)); do
		if [ "$(arrived)" != "$before" ]; then break; fi
		sleep 0.1
	done
	sleep 0.5
	opened=$(date +%s%N) begin=$(arrived)
	sleep "$seconds"
	closed=$(date +%s%N) end=$(arrived)
	kill -TERM "$process" 2>/dev/null || true
	wait "$process" 2>/dev/null || true
	if [ "$end" = "$begin" ]; then
		cat "$log" >&2
		exit 1
	fi
	rm -f "$log"
	echo $(((end - begin) * 1000000000 / (closed - opened)))
}
ours() {
	rate "$warmlane" gen run --transmit xdp:near --rate max --size 64 --vary ipv4.source=random:65536 --duration 60 --quiet "$@"
}
theirs() {
	rate dpdk-testpmd --lcores="(0,1)@$cpu" --main-lcore=0 --no-pci --no-telemetry --in-memory -m 64 --log-level=4 \
		--vdev=net_af_xdp0,iface=near -- --forward-mode=txonly --txonly-multi-flow --txpkts=60 --burst="$1" \
		--mbcache=512 --total-num-mbufs=16383 --stats-period=100
}
median() { sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

declare -a our_rates their_rates large_rates
for ((round = 0; round < rounds; round++)); do
	# Who goes first has a machine that rested.
	if ((round % 2 == 0)); then our_rates+=("$(ours)"); fi
	their_rates+=("$(theirs 64)")
	large_rates+=("$(theirs 256)")
	if ((round % 2 == 1)); then our_rates+=("$(ours)"); fi
	echo "round $round: warmlane gen ${our_rates[-1]}, testpmd bursts of 64 ${their_rates[-1]}, of 256 ${large_rates[-1]} packets a second"
done
ours=$(printf '%s\n' "${our_rates[@]}" | median)
small=$(printf '%s\n' "${their_rates[@]}" | median)
large=$(printf '%s\n' "${large_rates[@]}" | median)
best=$((small > large ? small : large))
echo "medians: warmlane gen $ours, testpmd $best; ratio $(awk "BEGIN { printf \"%.2f\", $ours / $best }")"

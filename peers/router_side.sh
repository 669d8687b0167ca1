#!/bin/bash
# One side of `cargo xtask compare router-kernel`, `router-dpdk` and `router-user-time`: who forwards between two virtual links, in
# namespaces of its own. As root; it measures a round for each line "go SECONDS" on its standard input, and ends with that.
#
#     peers/router_side.sh WHO HOW CPU GENERATOR_CPU CYCLES_A_SECOND WARMLANE L3_FORWARD
#
# WHO is kernel, kernel-rps, warmlane, testpmd (both DPDK ports are net_af_xdp) or l3_forward, and has CPU. `warmlane gen` on
# GENERATOR_CPU sends 64-byte UDP as fast as it can. A virtual link makes its sender do the receiver's work: a router's
# reception (its XDP program, and the copy into its memory) happens on GENERATOR_CPU, in the generator's system calls, and
# what the router's own system calls send is received on CPU. The kernel's forwarding is reception, too, so it takes
# place on GENERATOR_CPU (kernel), unless it is told to take CPU (kernel-rps, receive packet steering).
#
# HOW says what is counted: "forwarding" the time-stamp counter's cycles that go by for each packet that arrives, by the kernel's own
# counter at the last station; "saturated" those of CPU in user space. In that case somebody of higher priority has CPU for every
# other millisecond, in which more packets come than can be caught up with in the next: whoever forwards finds full rings
# at each poll.
set -euo pipefail
who=$1 how=$2 cpu=$3 generator_cpu=$4 clock=$5 warmlane=$6 l3_forward=$7
# What this script itself starts may hold the generator up, but not who is measured.
taskset --pid --cpu-list "$generator_cpu" $$ >/dev/null
west=router-side-west-$$ middle=router-side-middle-$$ east=router-side-east-$$
work=$(mktemp -d)
# Who is at work in the background, to be ended whatever happens.
declare -A process=()
finish() {
	local name
	for name in "${!process[@]}"; do end "$name"; done
	for name in "$west" "$middle" "$east"; do ip netns delete "$name" 2>/dev/null || true; done
	rm -rf "$work"
}
end() {
	local number=${process[$1]:-}
	unset "process[$1]"
	if [ -n "$number" ]; then
		kill -TERM "$number" 2>/dev/null || true
		wait "$number" 2>/dev/null || true
	fi
}
trap finish EXIT
trap 'exit 130' INT TERM

for name in "$west" "$middle" "$east"; do
	ip netns add "$name"
	ip netns exec "$name" sysctl -q -w net.ipv6.conf.default.disable_ipv6=1
done
ip link add sender netns "$west" type veth peer name left netns "$middle"
ip link add receiver netns "$east" type veth peer name right netns "$middle"
ip -n "$west" link set sender up
ip -n "$middle" link set left up
ip -n "$middle" link set right up
ip -n "$east" link set receiver up
ip -n "$middle" address add 10.0.0.1/24 dev left
ip -n "$middle" address add 10.0.1.1/24 dev right
ip netns exec "$middle" sysctl -q -w net.ipv4.ip_forward=1
if [ "$who" = kernel-rps ]; then
	printf -v mask %x $((1 << cpu))
	ip netns exec "$middle" sh -c "echo $mask >/sys/class/net/left/queues/rx-0/rps_cpus"
fi
# The last station is nobody's address: the kernel there counts the packet, sees that it isn't for it, and drops it.
station=02:00:00:00:00:99
ip -n "$middle" route add 198.18.0.0/15 via 10.0.1.2
ip -n "$middle" neighbour add 10.0.1.2 lladdr $station dev right nud permanent
left=$(ip netns exec "$middle" cat /sys/class/net/left/address)

count() { ip netns exec "$1" cat "/sys/class/net/$2/statistics/$3"; }
# What the generator handed over, taken or not.
offered() { echo $(($(count "$west" sender tx_packets) + $(count "$west" sender tx_dropped))); }
arrived() { count "$east" receiver rx_packets; }
# In the background, in a namespace and on a CPU, under a name.
start() {
	local name=$1 space=$2 cpu=$3
	shift 3
	ip netns exec "$space" taskset --cpu-list "$cpu" "$@" >"$work/$name" 2>&1 </dev/null &
	process[$name]=$!
}
fail() {
	echo "$who: $1" >&2
	cat "$work/side" "$work/generator" >&2 2>/dev/null || true
	exit 1
}
start_side() {
	local dpdk=(--no-pci --no-telemetry --in-memory -m 128 --log-level=4
		--vdev=net_af_xdp0,iface=left --vdev=net_af_xdp1,iface=right)
	case $who in
	kernel | kernel-rps) return ;;
	warmlane)
		start side "$middle" "$cpu" "$warmlane" router left right --spin --socket "$work/socket"
		for ((wait = 0; wait < 100; wait++)); do
			if grep -q 'note: forwarding between' "$work/side"; then return; fi
			sleep 0.1
		done
		fail "it doesn't start"
		;;
	testpmd)
		start side "$middle" "$cpu" dpdk-testpmd --lcores="(0,1)@$cpu" --main-lcore=0 "${dpdk[@]}" -- \
			--forward-mode=mac --eth-peer=1,$station --burst=64 --mbcache=512 --total-num-mbufs=16383 \
			--stats-period=100
		;;
	l3_forward)
		echo 198.18.0.0/15 >"$work/routes"
		echo go 3600 >"$work/go"
		# shellcheck disable=SC2016
		start side "$middle" "$cpu" sh -c 'go=$1; shift; exec "$@" <"$go"' sh "$work/go" "$l3_forward" -l "$cpu" \
			--force-max-simd-bitwidth=512 "${dpdk[@]}" -- --routes "$work/routes" --hops 1 --sink port --stored 12288 \
			--working 4096
		;;
	esac
	sleep 2
	kill -0 "${process[side]}" || fail "it has ended"
}
# The thread of a process that does the work.
thread() {
	local task name
	for task in /proc/"${process[$1]}"/task/*; do
		read -r name <"$task/comm"
		if [[ "$name" =~ ^(lane0|rte-worker-1|l3_forward|hog)$ ]]; then
			echo "${task##*/}"
		fi
	done
}
# Nanoseconds that a thread ran, and that it could have run but somebody else did.
scheduled() { cut -d ' ' -f 1,2 "/proc/$1/task/$1/schedstat"; }
# Hundredths of a second that the hypervisor took from both CPUs.
stolen() { awk -v one="cpu$cpu" -v other="cpu$generator_cpu" '$1 == one || $1 == other { sum += $9 } END { print sum }' /proc/stat; }
# User time is told by samples of the thread's CPU time. The kernel's own account goes by clock ticks, at which threads that
# share a CPU also change places, so that one of them may hardly ever be seen in user space.
user_share() {
	perf script -i "$work/samples" -F ip 2>/dev/null |
		awk '{ all++; if ($1 !~ /^ffff/) user++ } END { printf "%.6f", (all > 0 ? user / all : 0) }'
}
# One round. Somebody else having had the CPUs for more than a fiftieth of the time makes it disturbed.
round() {
	local seconds=$1 lane="" hog="" ran=0 held=0 hogged=0 now_ran now_held now_hogged
	local opened closed first_sent first_received sent received steal cycles disturbed="" more=""
	start_side
	if [ "$how" = saturated ]; then
		start hog "$middle" "$cpu" chrt --fifo 50 python3 -c 'import time
open("/proc/self/comm", "w").write("hog")
while True:
    end = time.perf_counter() + 0.001
    while time.perf_counter() < end:
        pass
    time.sleep(0.001)'
	fi
	first_sent=$(offered) first_received=$(arrived)
	start generator "$west" "$generator_cpu" "$warmlane" gen --transmit xdp:sender --rate max --size 64 --from 10.0.0.2 \
		--to 198.18.0.1 --to-mac "$left" --vary ipv4.source=random:65536 --duration 120 --quiet
	for ((wait = 0; wait < 100; wait++)); do
		if [ "$(arrived)" != "$first_received" ]; then break; fi
		sleep 0.1
	done
	sleep 1
	if [ -n "${process[side]:-}" ]; then lane=$(thread side); fi
	if [ -n "${process[hog]:-}" ]; then hog=$(thread hog); fi
	if [ -n "$lane" ]; then read -r ran held <<<"$(scheduled "$lane")"; fi
	if [ -n "$hog" ]; then read -r hogged _ <<<"$(scheduled "$hog")"; fi
	steal=$(stolen) sent=$(offered) received=$(arrived) opened=$(date +%s%N)
	if [ "$how" = saturated ]; then
		perf record --quiet --no-buildid --no-buildid-cache -e cpu-clock -F 4999 -t "$lane" -o "$work/samples" \
			sleep "$seconds" 2>/dev/null &
		# A tracepoint, counted where it is: unlike with strace, nobody waits.
		perf stat -x , -e raw_syscalls:sys_enter -p "${process[side]}" sleep "$seconds" 2>"$work/calls"
		wait $!
	else
		sleep "$seconds"
	fi
	closed=$(date +%s%N) sent=$(($(offered) - sent)) received=$(($(arrived) - received)) steal=$(($(stolen) - steal))
	if [ -n "$lane" ]; then
		read -r now_ran now_held <<<"$(scheduled "$lane")"
		ran=$((now_ran - ran)) held=$((now_held - held))
	fi
	if [ -n "$hog" ]; then
		read -r now_hogged _ <<<"$(scheduled "$hog")"
		hogged=$((now_hogged - hogged))
	fi
	end generator
	sleep 0.2
	first_sent=$(($(offered) - first_sent)) first_received=$(($(arrived) - first_received))
	end hog
	end side
	# What ends by a signal leaves DPDK's XDP programs behind.
	ip -n "$middle" link set left xdp off
	ip -n "$middle" link set right xdp off
	if [ "$received" = 0 ]; then fail "nothing arrived"; fi
	if [ "$how" = saturated ]; then
		cycles=$(awk "BEGIN { printf \"%d\", $(user_share) * $ran * $clock / 1e9 }")
		more=$(awk -F , -v packets="$received" '/sys_enter/ { printf ", %.1f system calls a thousand packets", $1 * 1000 / packets }' \
			"$work/calls")
		held=$((closed - opened - ran - hogged))
	else
		cycles=$(((closed - opened) * (clock / 1000) / 1000000))
	fi
	if ((held * 50 > closed - opened)); then disturbed="somebody else had CPU $cpu for $((held / 1000000)) ms"; fi
	if ((steal * 500000000 > closed - opened)); then disturbed="the hypervisor took $((steal * 10)) ms"; fi
	echo "$((sent * 1000000000 / (closed - opened))) $((received * 1000000000 / (closed - opened))) $first_sent $first_received" |
		awk -v who="$who" -v more="$more" \
			'{ printf "%s: %d packets a second offered, %d arrived, lost %.3f %%%s\n", who, $1, $2, 100 * ($3 - $4) / $3, more }' >&2
	echo "{\"packets\":$received,\"cycles\":$cycles,\"disturbed\":\"$disturbed\"}"
}

echo ready
while read -r go seconds; do
	if [ "$go" = go ]; then round "$seconds"; fi
done

#!/bin/bash
# Who forwards faster between two virtual links: the kernel, warmlane router, testpmd over AF_XDP, or, if it was built, our
# l3_forward over DPDK's AF_XDP? They take turns between two hosts in namespaces of their own; what counts is what arrives
# at the second, by the kernel's own counter. As root:
#
#     peers/router_veth.sh [WARMLANE [ROUNDS [SECONDS [RATE [SATURATED_ROUNDS]]]]]
#
# What is under test runs on CPU 1, warmlane gen on CPU 0. A virtual link makes its sender do the receiver's work: the
# router's reception (its XDP program, and the copy into its memory) happens on CPU 0, in the generator's system calls,
# and what the router's own system calls send is received on CPU 1. The kernel's forwarding is reception, too, so it
# takes place on CPU 0 (`kernel`), unless it is told to take CPU 1 (`kernel-rps`, receive packet steering).
#
# Lost is what was offered and did not arrive, from the first packet of a turn to the last. A turn in which somebody else
# had one of the CPUs is void and repeated.
set -euo pipefail
warmlane=${1:-target/release/warmlane} rounds=${2:-5} seconds=${3:-3} rate=${4:-max} saturated=${5:-$rounds}
l3_forward=${CARGO_TARGET_DIR:-$(dirname "$0")/../target}/peers/l3_forward
# What this script itself starts may hold the generator up, but not who is measured.
taskset --pid --cpu-list 0 $$ >/dev/null
warmlane=$(realpath "$warmlane")
west=router-veth-west-$$ middle=router-veth-middle-$$ east=router-veth-east-$$
work=$(mktemp -d)
# Who is at work in the background, to be ended whatever happens.
declare -A process=()
finish() {
	local name
	for name in "${!process[@]}"; do end "$name"; done
	for name in "$west" "$middle" "$east"; do ip netns delete "$name" 2>/dev/null || true; done
	sysctl -q -w vm.nr_hugepages="$pages"
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
# All sides get huge pages: what lies across the border of smaller ones would be copied once more.
pages=$(cat /proc/sys/vm/nr_hugepages)
trap finish EXIT
trap 'exit 130' INT TERM
sysctl -q -w vm.nr_hugepages=$((pages + 160))

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
steering() { ip netns exec "$middle" sh -c "echo $1 >/sys/class/net/left/queues/rx-0/rps_cpus"; }
prepare() {
	steering 0
	case $1 in
	kernel) ;;
	kernel-rps) steering 2 ;;
	warmlane) start side "$middle" 1 "$warmlane" router left right --spin --socket "$work/socket" ;;
	testpmd)
		start side "$middle" 1 dpdk-testpmd --lcores="(0,1)@1" --main-lcore=0 --no-pci --no-telemetry --in-memory \
			-m 128 --log-level=4 --vdev=net_af_xdp0,iface=left --vdev=net_af_xdp1,iface=right -- \
			--forward-mode=mac --eth-peer=1,$station --burst=64 --mbcache=512 --total-num-mbufs=16383 \
			--stats-period=100
		;;
	l3_forward)
		echo 198.18.0.0/15 >"$work/routes"
		echo go 3600 >"$work/go"
		# shellcheck disable=SC2016
		start side "$middle" 1 sh -c 'go=$1; shift; exec "$@" <"$go"' sh "$work/go" "$l3_forward" -l 1 --no-pci \
			--no-telemetry --in-memory -m 128 --log-level=4 --force-max-simd-bitwidth=512 \
			--vdev=net_af_xdp0,iface=left --vdev=net_af_xdp1,iface=right -- --routes "$work/routes" --hops 1 \
			--sink port --stored 12288 --working 4096
		;;
	esac
	sleep 2
	if [ -n "${process[side]:-}" ] && ! kill -0 "${process[side]}"; then
		cat "$work/side" >&2
		exit 1
	fi
}
# The thread of a process that does the work.
thread() {
	local task name
	for task in /proc/"${process[$1]}"/task/*; do
		read -r name <"$task/comm"
		if [[ "$name" =~ ^(lane0|rte-worker-1|l3_forward|transmit)$ ]]; then
			echo "${task##*/}"
		fi
	done
}
# Nanoseconds that a thread ran, and that it could have run but somebody else did.
scheduled() { cut -d ' ' -f 1,2 "/proc/$1/task/$1/schedstat"; }
# User time is told by samples of the thread's CPU time. The kernel's own account goes by clock ticks, at which threads that
# share a CPU also change places, so that one of them may hardly ever be seen in user space.
user_share() {
	perf script -i "$work/samples" -F ip 2>/dev/null |
		awk '{ all++; if ($1 !~ /^ffff/) user++ } END { printf "%.6f", (all > 0 ? user / all : 0) }'
}
# One turn: packets a second offered, and arrived, lost packets of a million; if asked for, user time in picoseconds a packet,
# and system calls for a thousand packets. Fails if somebody else had the CPUs for more than a fiftieth of the time.
turn() {
	local side=$1 what=$2 before_sent before opened closed sent received lost ran=0 held=0 now_ran now_held
	local user=0 calls=0 sender lane=""
	prepare "$side"
	if [ "$what" = saturated ]; then
		# A loop takes half of CPU 1, so that whoever forwards finds full rings whenever it runs.
		start loop "$middle" 1 sh -c 'while :; do :; done'
	fi
	before_sent=$(offered) before=$(arrived)
	start generator "$west" 0 "$warmlane" gen --transmit xdp:sender --rate "$3" --size 64 --from 10.0.0.2 \
		--to 198.18.0.1 --to-mac "$left" --vary ipv4.source=random:65536 --duration 120 --quiet
	for ((wait = 0; wait < 100; wait++)); do
		if [ "$(arrived)" != "$before" ]; then break; fi
		sleep 0.1
	done
	sleep 1
	sender=$(thread generator)
	if [ -n "${process[side]:-}" ]; then
		lane=$(thread side)
		read -r ran held <<<"$(scheduled "$lane")"
	fi
	opened=$(date +%s%N) sent=$(offered) received=$(arrived)
	if [ "$what" = saturated ]; then
		perf record --quiet -e cpu-clock -F 4999 -t "$lane" -o "$work/samples" sleep "$seconds" 2>/dev/null &
		# A tracepoint, counted where it is: unlike with strace, nobody waits.
		perf stat -x , -e raw_syscalls:sys_enter -p "${process[side]}" sleep "$seconds" 2>"$work/calls"
	else
		sleep "$seconds"
	fi
	sent=$(($(offered) - sent)) received=$(($(arrived) - received)) closed=$(date +%s%N)
	if [ -n "$lane" ]; then
		read -r now_ran now_held <<<"$(scheduled "$lane")"
		ran=$((now_ran - ran)) held=$((now_held - held))
	fi
	if [ "$what" = saturated ]; then
		wait $!
		user=$(awk "BEGIN { printf \"%d\", $(user_share) * $ran * 1000 / ($received + 1) }")
		calls=$(awk -F , -v packets="$received" '/sys_enter/ && $1 > 0 { printf "%d", $1 * 1000 / packets }' "$work/calls")
		# Half is the loop's.
		held=$((held > ran ? held - ran : ran - held))
	fi
	end generator
	if [ "$received" = 0 ] || [ -z "$calls" ]; then
		cat "$work/generator" >&2
		exit 1
	fi
	sleep 0.2
	before_sent=$(($(offered) - before_sent)) before=$(($(arrived) - before))
	lost=$(((before_sent - before) * 1000000 / before_sent))
	end loop
	end side
	# What ends by a signal leaves DPDK's XDP programs behind.
	ip -n "$middle" link set left xdp off
	ip -n "$middle" link set right xdp off
	if ((held * 50 > closed - opened)); then
		return 1
	fi
	# To the shell that called: a subshell would not know of the processes.
	echo "$((sent * 1000000000 / (closed - opened))) $((received * 1000000000 / (closed - opened))) $lost $user $calls" \
		>>"$work/$what-$side"
}
void=0
# A turn, up to five times until it is valid.
valid_turn() {
	for ((try = 0; try < 5; try++)); do
		if turn "$@"; then return; fi
		void=$((void + 1))
	done
	echo "somebody else is at work on CPU 1: ended after five void turns" >&2
	exit 1
}
column() { cut -d ' ' -f "$3" "$work/$1-$2" | sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
last() { tail -n 1 "$work/$1-$2"; }

sides=(kernel kernel-rps warmlane testpmd) lanes=(warmlane testpmd)
if [ -x "$l3_forward" ]; then
	sides+=(l3_forward) lanes+=(l3_forward)
else
	echo "without l3_forward: \`make\` in peers/ builds it"
fi
for ((round = 0; round < rounds; round++)); do
	line="round $round, offered and arrived packets a second:"
	# Each goes first in its turn.
	for ((number = 0; number < ${#sides[@]}; number++)); do
		side=${sides[(number + round) % ${#sides[@]}]}
		valid_turn "$side" forwarding "$rate"
		read -r sent received _ <<<"$(last forwarding "$side")"
		line+=" $side $sent $received,"
	done
	echo "${line%,}"
done
for ((round = 0; round < saturated; round++)); do
	line="round $round, saturated, packets a second, ns of user time a packet, system calls a thousand packets:"
	for ((number = 0; number < ${#lanes[@]}; number++)); do
		side=${lanes[(number + round) % ${#lanes[@]}]}
		valid_turn "$side" saturated max
		read -r _ received _ user calls <<<"$(last saturated "$side")"
		line+=" $side $received $((user / 1000)) $calls,"
	done
	echo "${line%,}"
done

ratio() { awk "BEGIN { printf \"%.2f\", $1 / $2 }"; }
echo "medians ($void turns were void):"
if ((rounds > 0)); then
	for side in "${sides[@]}"; do
		sent=$(column forwarding "$side" 1) received=$(column forwarding "$side" 2) lost=$(column forwarding "$side" 3)
		echo "  $side: offered $sent, arrived $received, lost $(awk "BEGIN { printf \"%.3f\", $lost / 10000 }") %," \
			"warmlane / $side $(ratio "$(column forwarding warmlane 2)" "$received")"
	done
fi
if ((saturated > 0)); then
	for side in "${lanes[@]}"; do
		user=$(column saturated "$side" 4)
		echo "  $side saturated: $(column saturated "$side" 2) packets a second, $user ps of user time a packet," \
			"$(column saturated "$side" 5) system calls a thousand packets," \
			"user time warmlane / $side $(ratio "$(column saturated warmlane 4)" "$user")," \
			"packets warmlane / $side $(ratio "$(column saturated warmlane 2)" "$(column saturated "$side" 2)")"
	done
fi

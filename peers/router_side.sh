#!/bin/bash
# One side of the comparisons of `cargo xtask compare` whose names begin with "router": who forwards between two virtual links, in
# namespaces of its own. As root; it measures a round for each line "go SECONDS" on its standard input, and ends with that.
#
#     peers/router_side.sh WHO HOW CPU GENERATOR_CPU CYCLES_A_SECOND WARMLANE L3_FORWARD
#
# WHO is kernel, kernel-rps, warmlane (lanes over AF_XDP), warmlane-generic (whose XDP program runs in the network stack), warmlane-xdp
# and warmlane-tc (which forward inside the kernel, and so on GENERATOR_CPU as it does), testpmd (both DPDK ports are net_af_xdp) or
# l3_forward, and has CPU; a generator of 64-byte UDP has GENERATOR_CPU. A virtual link makes
# its sender do the receiver's work: a router's reception (its XDP program, and the copy into its memory) happens on GENERATOR_CPU,
# in the generator's system calls, and what the router's own system calls send is received on CPU. The kernel's forwarding is
# reception, too, so it takes place on GENERATOR_CPU (kernel), unless it is told to take CPU (kernel-rps, receive packet steering).
#
# Three more do a part of what a router over AF_XDP does, and so bound it: drop (an XDP program throws all packets away at
# the first link) and receive (`warmlane router` takes them from its AF_XDP socket there, and a blackhole route is all it has for
# them), of which those are counted that the link took; and send (`warmlane gen` on CPU fills the second link over AF_XDP, and
# there is no other generator).
#
# HOW says who sends and what is counted:
#
# - forwarding: `warmlane gen` sends as fast as it can, each packet by a socket buffer of its own, which leaves little of GENERATOR_CPU
#   for reception. Counted are the time-stamp counter's cycles that go by for each packet that arrives, by the kernel's own counter at
#   the last station.
# - flooded: the same is counted, but `xdp_send.py` sends, as a card with a driver for XDP would: several times what anybody
#   can forward, so that CPU is the limit.
# - scattered: that flood, to 65,536 destinations at random, so that hardly any two of a moment are for the same.
# - established: that flood, of 64 flows that conntrack has established, through a gateway that masquerades them and accepts what is
#   established by its first rule. Ours has --offload-established. Needs nft and conntrack.
# - established-1000: the same with 1,000 rules before that one.
# - saturated: that flood, and what is counted are the cycles of CPU in user space.
set -euo pipefail
who=$1 how=$2 cpu=$3 generator_cpu=$4 clock=$5 warmlane=$6 l3_forward=$7
# What this script itself starts may hold the generator up, but not who is measured.
taskset --pid --cpu-list "$generator_cpu" $$ >/dev/null
here=$(dirname "$0")
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

# shellcheck source=links.sh
. "$here/links.sh"
make_links
for name in "$west" "$middle" "$east"; do
	# Who stays in it lets others look at its counters.
	ip netns exec "$name" sleep infinity </dev/null >/dev/null &
	process[$name]=$!
done
if [ "$who" = kernel-rps ]; then
	printf -v mask %x $((1 << cpu))
	ip netns exec "$middle" sh -c "echo $mask >/sys/class/net/left/queues/rx-0/rps_cpus"
fi
# The last station is nobody's address: the kernel there counts the packet, sees that it isn't for it, and drops it.
station=02:00:00:00:00:99
ip -n "$middle" route add 198.18.0.0/15 via 10.0.1.2
if [ "$who" = receive ]; then ip -n "$middle" route replace blackhole 198.18.0.0/15; fi
ip -n "$middle" neighbour add 10.0.1.2 lladdr $station dev right nud permanent
if [ "$how" != forwarding ]; then
	# Without a program or GRO at the other end a virtual link takes no packets of XDP.
	ip netns exec "$middle" ethtool -K left gro on
fi
# The same for what is redirected to the second link.
if [ "$who" = warmlane-xdp ]; then ip netns exec "$east" ethtool -K receiver gro on; fi
left=$(ip netns exec "$middle" cat /sys/class/net/left/address)
sources=65536 destination=198.18.0.1 destinations=1 offload=()
if [ "$how" = scattered ]; then destination=198.18.0.0 destinations=65536; fi
if [[ "$how" == established* ]]; then
	sources=64 offload=(--offload-established)
	{
		echo 'table ip gateway {'
		echo 'chain across { type filter hook forward priority 0; policy drop;'
		if [ "$how" = established-1000 ]; then
			for ((rule = 0; rule < 1000; rule++)); do echo "ip saddr 172.16.$((rule / 250)).$((rule % 250)) drop"; done
		fi
		echo 'ct state established,related accept'
		echo 'iifname "left" accept'
		echo '}'
		echo 'chain out { type nat hook postrouting priority 100; oifname "right" masquerade; }'
		echo '}'
	} | ip netns exec "$middle" nft -f -
fi
# As if packets had been seen both ways.
establish() {
	local source
	ip netns exec "$middle" conntrack -F 2>/dev/null
	for ((source = 0; source < sources; source++)); do
		ip netns exec "$middle" conntrack -I -p udp -s "10.2.0.$source" -d 198.18.0.1 --sport 9 --dport 9 \
			--src-nat "10.0.1.1:$((1024 + source))" -t 600 -u SEEN_REPLY,ASSURED >/dev/null 2>"$work/conntrack" || fail "$(<"$work/conntrack")"
	done
}
are_offloaded() {
	"$warmlane" router counters --json --socket "$work/socket" 2>/dev/null | grep -Eq '"established": *[1-9]'
}

# All that is looked at during a round is read by this shell itself: a program takes tenths of a second to start on the generator's CPU.
look_at() { read -r "$1" <"/proc/${process[$2]}/root/sys/class/net/$3/statistics/$4"; }
# What the generator has handed over, taken or not, and what has arrived.
look() {
	local taken refused from=("$west" sender) to=("$east" receiver)
	case $who in
	send) from=("$middle" right) ;;
	drop | receive) to=("$middle" left) ;;
	esac
	look_at taken "${from[@]}" tx_packets
	look_at refused "${from[@]}" tx_dropped
	look_at arrived "${to[@]}" rx_packets
	offered=$((taken + refused)) now=${EPOCHREALTIME/./}
}
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
# `warmlane gen` in a namespace and on a CPU, out of an interface.
generate() {
	start generator "$1" "$2" "$warmlane" gen run --transmit "xdp:$3" --rate max --size 64 --from 10.0.0.2 --to 198.18.0.1 \
		--to-mac "$4" --vary ipv4.source=random:65536 --duration 120 --quiet
}
# Until something has come true, for ten seconds at most.
await() {
	local tries
	for ((tries = 0; tries < 200; tries++)); do
		if "$@"; then return; fi
		sleep 0.05
	done
	fail "it doesn't start"
}
has_program() { [[ "$(ip -n "$middle" -o link show "$1")" == *xdp* ]]; }
forwards() { grep -qs 'note: forwarding between' "$work/side"; }
something_arrived() {
	look
	[ "$arrived" != "$first_arrived" ]
}
start_side() {
	local dpdk=(--no-pci --no-telemetry --in-memory -m 128 --log-level=4)
	local left=--vdev=net_af_xdp0,iface=left right=--vdev=net_af_xdp1,iface=right
	local testpmd=(--burst=64 --mbcache=512 --total-num-mbufs=16383 --stats-period=100)
	case $who in
	kernel | kernel-rps | send) return ;;
	warmlane | warmlane-generic | receive)
		local mode=best
		if [ "$who" = warmlane-generic ]; then mode=generic; fi
		start side "$middle" "$cpu" "$warmlane" router left right --path user --spin --mode $mode --socket "$work/socket"
		await forwards
		;;
	warmlane-xdp | warmlane-tc)
		start side "$middle" "$cpu" "$warmlane" router left right --path "${who#warmlane-}" "${offload[@]}" --socket "$work/socket"
		await forwards
		;;
	testpmd)
		start side "$middle" "$cpu" dpdk-testpmd --lcores="(0,1)@$cpu" --main-lcore=0 "${dpdk[@]}" "$left" "$right" -- \
			--forward-mode=mac --eth-peer=1,$station "${testpmd[@]}"
		await has_program right
		;;
	l3_forward)
		echo 198.18.0.0/15 >"$work/routes"
		echo go 3600 >"$work/go"
		# shellcheck disable=SC2016
		start side "$middle" "$cpu" sh -c 'go=$1; shift; exec "$@" <"$go"' sh "$work/go" "$l3_forward" -l "$cpu" \
			--force-max-simd-bitwidth=512 "${dpdk[@]}" "$left" "$right" -- --routes "$work/routes" --hops 1 --sink port \
			--stored 12288 --working 4096
		await has_program right
		;;
	drop)
		start side "$middle" "$cpu" python3 -B "$here/xdp_drop.py" left
		await has_program left
		;;
	esac
	kill -0 "${process[side]}" || fail "it has ended"
}
# The thread of a process that does the work.
thread() {
	local task name
	for task in /proc/"${process[$1]}"/task/*; do
		read -r name <"$task/comm"
		if [[ "$name" =~ ^(lane0|rte-worker-1|l3_forward)$ ]]; then
			echo "${task##*/}"
		fi
	done
}
# Nanoseconds that a thread ran, and that it could have run but somebody else did; none for nobody.
scheduled() {
	ran=0 held=0
	if [ -n "$1" ]; then read -r ran held _ <"/proc/$1/task/$1/schedstat"; fi
}
# Hundredths of a second that the hypervisor took from both CPUs.
stolen() {
	local name fields
	stolen=0
	while read -r name fields; do
		if [ "$name" = "cpu$cpu" ] || [ "$name" = "cpu$generator_cpu" ]; then
			# shellcheck disable=SC2086
			set -- $fields
			stolen=$((stolen + $8))
		fi
	done </proc/stat
}
# User time is told by samples of the thread's CPU time. The kernel's own account goes by clock ticks, at which threads that
# share a CPU also change places, so that one of them may hardly ever be seen in user space.
user_share() {
	perf script -i "$work/samples" -F ip 2>/dev/null |
		awk '{ all++; if ($1 !~ /^ffff/) user++ } END { printf "%.6f", (all > 0 ? user / all : 0) }'
}
# One round. Somebody else having had the CPUs for more than a fiftieth of the time makes it disturbed.
round() {
	local seconds=$1 lane="" sampler counter length cycles disturbed="" more="" offered arrived now ran held stolen
	local first_offered first_arrived since sent received lane_ran lane_held steal
	if [[ "$how" == established* ]]; then establish; fi
	start_side
	look
	first_offered=$offered first_arrived=$arrived
	if [ "$who" = send ]; then
		generate "$middle" "$cpu" right,take_all=true "$station"
	elif [ "$how" = forwarding ]; then
		generate "$west" "$generator_cpu" sender "$left"
	else
		start generator "$west" "$generator_cpu" python3 -B "$here/xdp_send.py" sender "$left" 10.2.0.0 "$destination" "$sources" \
			"$destinations"
	fi
	await something_arrived
	if [[ "$how" == established* ]] && [ "$who" != kernel ]; then await are_offloaded; fi
	# Until it runs smoothly, but no longer than what is measured.
	if [[ "$seconds" == 0.* ]]; then sleep "$seconds"; else sleep 1; fi
	if [ -n "${process[side]:-}" ]; then lane=$(thread side); fi
	stolen
	steal=$stolen
	scheduled "$lane"
	lane_ran=$ran lane_held=$held
	look
	since=$now sent=$offered received=$arrived
	if [ "$how" = saturated ]; then
		# Both would start and end slowly beside so much work, so they go first, and each says itself when its time is over. The
		# tracepoint is counted where it is: unlike with strace, nobody waits.
		rm -f "$work/sampled" "$work/counted"
		# shellcheck disable=SC2016
		local while_it_sleeps=(sh -c 'sleep "$1"; : >"$2"' sh "$seconds")
		chrt --fifo 1 perf record --quiet --no-buildid --no-buildid-cache -e cpu-clock -F 4999 -t "$lane" -o "$work/samples" \
			"${while_it_sleeps[@]}" "$work/sampled" 2>/dev/null &
		sampler=$!
		chrt --fifo 1 perf stat -x , -e raw_syscalls:sys_enter -t "$lane" "${while_it_sleeps[@]}" "$work/counted" 2>"$work/calls" &
		counter=$!
		until [ -e "$work/sampled" ] && [ -e "$work/counted" ]; do sleep 0.05; done
	else
		sleep "$seconds"
	fi
	look
	length=$((now - since)) sent=$((offered - sent)) received=$((arrived - received))
	scheduled "$lane"
	lane_ran=$((ran - lane_ran)) lane_held=$((held - lane_held))
	stolen
	steal=$((stolen - steal))
	end generator
	if [ "$how" = saturated ]; then wait "$sampler" "$counter"; fi
	sleep 0.2
	look
	first_offered=$((offered - first_offered)) first_arrived=$((arrived - first_arrived))
	end side
	# What ends by a signal leaves DPDK's XDP programs behind.
	ip -n "$middle" link set left xdp off
	ip -n "$middle" link set right xdp off
	if ((received <= 0)); then fail "nothing arrived"; fi
	if [ "$how" = saturated ]; then
		cycles=$(awk "BEGIN { printf \"%.0f\", $(user_share) * $lane_ran * $clock / 1e9 }")
		# Its fourth field is the CPU time of the thread, in nanoseconds, in which they were counted.
		more=$(awk -F , -v packets="$received" -v ran="$lane_ran" \
			'/sys_enter/ { printf ", %.1f system calls a thousand packets", ($1 / $4) * 1000 / (packets / ran) }' "$work/calls")
	else
		cycles=$((length * (clock / 1000) / 1000))
	fi
	if ((lane_held > length * 1000 / 50)); then disturbed="somebody else had CPU $cpu for $((lane_held / 1000000)) ms"; fi
	if ((steal * 10000 > length / 50)); then disturbed="the hypervisor took $((steal * 10)) ms"; fi
	awk -v who="$who" -v seconds="$((length))e-6" -v sent="$sent" -v received="$received" -v all="$first_offered" \
		-v lost="$((first_offered - first_arrived))" -v more="$more${disturbed:+: not counted, $disturbed}" 'BEGIN {
		printf "%s: %d packets a second offered, %d arrived, lost %.3f %%%s\n",
			who, sent / seconds, received / seconds, 100 * lost / all, more
	}' >&2
	echo "{\"packets\":$received,\"cycles\":$cycles,\"disturbed\":\"$disturbed\"}"
}

echo ready
while read -r go seconds; do
	if [ "$go" = go ]; then round "$seconds"; fi
done

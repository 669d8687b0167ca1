# For scripts that send through a router between two virtual links: makes the namespaces $west, $middle and $east, and from the outer
# two a link each to the middle one, whose ends are called sender, left, right and receiver.
make_links() {
	local name
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
}

// SPDX-License-Identifier: MIT OR Apache-2.0
/* Leads all packets that come in by one interface into another, as if they had come in there. */

#include "kernel.h"

const char gpl_compatible[] SEC("license") = "Dual MIT/GPL";

/* The other interface's number. */
ARRAY(MAP_ARRAY, u32, 1) into SEC(".maps");

SEC("classifier")
int warmlane_reenter(struct __sk_buff *skb)
{
	u32 key = 0;
	const u32 *interface = bpf_map_lookup_elem(&into, &key);

	(void)skb;
	return interface ? bpf_redirect(*interface, INTO_INGRESS) : TC_DROP;
}

mod lending;

use super::*;
use crate::features::{GUEST_TSO4, VERSION_1};

#[test]
fn control_queues_have_two_descriptors_and_no_more_than_are_of_use() {
    let sizes = [(0, None), (1, None), (2, Some(2)), (3, Some(2)), (63, Some(32)), (64, Some(64))];
    for (most, size) in sizes.into_iter().chain([(65, Some(64)), (u16::MAX, Some(64))]) {
        assert_eq!(control_ring_size(most), size, "{most}");
    }
}

#[test]
fn what_does_not_go_together_is_not_agreed_on() {
    let all = VERSION_1 | MERGEABLE | EVENT_INDEX | GUEST_TSO4;
    assert_eq!(agree(all, all), all);
    assert_eq!(agree(all | PACKED, all | PACKED), all & !EVENT_INDEX | PACKED);
    assert_eq!(agree(all | PACKED, all), all, "it has split rings only");
    assert_eq!(agree(all, all & !MERGEABLE), VERSION_1 | EVENT_INDEX);
}

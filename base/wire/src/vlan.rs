//! VLAN tags: customer tags (IEEE 802.1Q) and service tags (IEEE 802.1ad), up to two in a row.

use crate::error::{Truncated, take};
use crate::{EtherType, EthernetHeader};

/// Bytes of one tag.
pub const TAG_LENGTH: usize = 4;

/// One tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// The EtherType that announces the tag: [`EtherType::VLAN`] or [`EtherType::SERVICE_VLAN`].
    pub protocol: EtherType,
    /// The tag control information: priority (3 bits), drop eligible (1 bit), VLAN id (12 bits).
    pub control: u16,
}

impl VlanTag {
    /// A customer tag of priority 0. Only the low 12 bits of `id` count.
    #[inline]
    pub const fn customer(id: u16) -> Self {
        Self { protocol: EtherType::VLAN, control: id & 0x0fff }
    }

    /// A service tag of priority 0. Only the low 12 bits of `id` count.
    #[inline]
    pub const fn service(id: u16) -> Self {
        Self { protocol: EtherType::SERVICE_VLAN, control: id & 0x0fff }
    }

    /// The same tag with a priority; only the low 3 bits count.
    #[inline]
    #[must_use]
    pub const fn with_priority(self, priority: u8) -> Self {
        let control = (self.control & 0x1fff) | ((priority as u16) << 13);
        Self { control, ..self }
    }

    /// The VLAN id: 0 means "priority only", 4095 is reserved.
    #[inline]
    pub const fn id(self) -> u16 {
        self.control & 0x0fff
    }

    /// The priority code point: 0 to 7.
    #[inline]
    pub const fn priority(self) -> u8 {
        (self.control >> 13) as u8
    }

    /// Whether the frame may be dropped first.
    #[inline]
    pub const fn drop_eligible(self) -> bool {
        self.control & 0x1000 != 0
    }
}

/// A frame with its tags walked.
#[derive(Debug, Clone, Copy)]
pub struct LinkLayer<'a> {
    /// The 14 bytes in front.
    pub header: EthernetHeader<'a>,
    /// The first tag.
    pub outer: Option<VlanTag>,
    /// The second tag.
    pub inner: Option<VlanTag>,
    /// What the payload is. After two tags it may announce a third one, which is left unread.
    pub ethertype: EtherType,
    /// What follows the tags, link-layer padding included.
    pub payload: &'a [u8],
}

impl<'a> LinkLayer<'a> {
    /// Reads the Ethernet header and up to two tags.
    ///
    /// # Errors
    /// [`Truncated`] if the frame ends within the header or a tag.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, Truncated> {
        let (header, payload) = EthernetHeader::parse(frame)?;
        let untagged = Self { header, outer: None, inner: None, ethertype: header.ethertype(), payload };
        if untagged.ethertype.is_vlan() { untagged.tags() } else { Ok(untagged) }
    }

    fn tags(self) -> Result<Self, Truncated> {
        let (outer, ethertype, payload) = tag(self.ethertype, self.payload)?;
        let tagged = Self { outer: Some(outer), ethertype, payload, ..self };
        if !ethertype.is_vlan() {
            return Ok(tagged);
        }
        let (inner, ethertype, payload) = tag(ethertype, payload)?;
        Ok(Self { inner: Some(inner), ethertype, payload, ..tagged })
    }

    /// Bytes in front of the payload: 14, 18 or 22.
    #[inline]
    pub fn header_length(&self) -> usize {
        let tags = usize::from(self.outer.is_some()) + usize::from(self.inner.is_some());
        crate::ethernet::HEADER_LENGTH + TAG_LENGTH * tags
    }
}

fn tag(protocol: EtherType, bytes: &[u8]) -> Result<(VlanTag, EtherType, &[u8]), Truncated> {
    let ([a, b, c, d], rest) = take(bytes, "VLAN tag")?;
    let tag = VlanTag { protocol, control: u16::from_be_bytes([*a, *b]) };
    Ok((tag, EtherType(u16::from_be_bytes([*c, *d])), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(after_addresses: &[u8]) -> Vec<u8> {
        [&[0xaa; 12][..], after_addresses].concat()
    }

    #[test]
    fn no_tag_one_tag_two_tags() {
        let bytes = frame(&[0x08, 0x00, 1, 2]);
        let link = LinkLayer::parse(&bytes).unwrap();
        assert_eq!((link.outer, link.inner, link.ethertype), (None, None, EtherType::IPV4));
        assert_eq!((link.payload, link.header_length()), (&[1, 2][..], 14));

        let bytes = frame(&[0x81, 0x00, 0xb0, 0x64, 0x86, 0xdd, 1, 2]);
        let link = LinkLayer::parse(&bytes).unwrap();
        let tag = link.outer.unwrap();
        assert_eq!((tag.id(), tag.priority(), tag.drop_eligible()), (100, 5, true));
        assert_eq!((link.inner, link.ethertype, link.payload), (None, EtherType::IPV6, &[1, 2][..]));
        assert_eq!(link.header_length(), 18);

        let bytes = frame(&[0x88, 0xa8, 0x0f, 0xff, 0x81, 0x00, 0x60, 0x01, 0x08, 0x06, 9]);
        let link = LinkLayer::parse(&bytes).unwrap();
        assert_eq!(link.outer, Some(VlanTag::service(0xfff)));
        assert_eq!(link.inner, Some(VlanTag::customer(1).with_priority(3)));
        assert_eq!((link.ethertype, link.payload, link.header_length()), (EtherType::ARP, &[9][..], 22));
    }

    #[test]
    fn a_third_tag_is_left_to_the_caller() {
        let bytes = frame(&[0x88, 0xa8, 0, 1, 0x81, 0x00, 0, 2, 0x81, 0x00, 0, 3, 0x08, 0x00]);
        let link = LinkLayer::parse(&bytes).unwrap();
        assert_eq!((link.ethertype, link.payload), (EtherType::VLAN, &[0, 3, 8, 0][..]));
    }

    #[test]
    fn a_cut_tag_is_truncated() {
        let error = LinkLayer::parse(&frame(&[0x81, 0x00, 0, 1, 0x08])).unwrap_err();
        assert_eq!(error, Truncated { header: "VLAN tag", needed: 4, available: 3 });
        let error = LinkLayer::parse(&frame(&[0x88, 0xa8, 0, 1, 0x81, 0x00])).unwrap_err();
        assert_eq!(error, Truncated { header: "VLAN tag", needed: 4, available: 0 });
    }

    #[test]
    fn priority_replaces_priority_only() {
        let tag = VlanTag::customer(0xffff).with_priority(7).with_priority(0xfa);
        assert_eq!((tag.id(), tag.priority(), tag.drop_eligible()), (0xfff, 2, false));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_truncated(bytes in prop::collection::vec(any::<u8>(), 0..40), tags in 0..4_usize) {
            let mut bytes = bytes;
            for at in (12..).step_by(4).take(tags) {
                if let Some(ethertype) = bytes.get_mut(at..at + 2) {
                    ethertype.copy_from_slice(&[0x81, 0x00]);
                }
            }
            if let Ok(link) = LinkLayer::parse(&bytes) {
                prop_assert_eq!(link.header_length() + link.payload.len(), bytes.len());
            }
        }
    }
}

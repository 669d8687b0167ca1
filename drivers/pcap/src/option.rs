//! Codes of options in blocks of pcapng (draft-ietf-opsawg-pcapng section 4), each by the kind of block that has it.

/// `opt_comment`, in any block.
pub(crate) const COMMENT: u16 = 1;
/// `shb_userappl` of a Section Header Block.
pub(crate) const SECTION_APPLICATION: u16 = 4;
/// `if_name` of an Interface Description Block.
pub(crate) const INTERFACE_NAME: u16 = 2;
/// `if_description`.
pub(crate) const INTERFACE_DESCRIPTION: u16 = 3;
/// `if_tsresol`.
pub(crate) const INTERFACE_RESOLUTION: u16 = 9;
/// `if_fcslen`.
pub(crate) const INTERFACE_FCS_LENGTH: u16 = 13;
/// `if_tsoffset`.
pub(crate) const INTERFACE_OFFSET: u16 = 14;
/// `epb_flags` of an Enhanced Packet Block, and the same in the obsolete Packet Block.
pub(crate) const PACKET_FLAGS: u16 = 2;
/// `isb_ifrecv` of an Interface Statistics Block.
pub(crate) const STATISTICS_RECEIVED: u16 = 4;
/// `isb_ifdrop`.
pub(crate) const STATISTICS_DROPPED: u16 = 5;

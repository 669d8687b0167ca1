use super::*;

fn samples() -> Vec<Request> {
    let region = |guest| MemoryRegion { guest, length: 4096, user: 7, offset: 1 << 40 };
    let ring = RingState { index: 3, value: 256 };
    let inflight = Inflight { length: 1, offset: 2, rings: 3, ring_size: 4 };
    vec![
        Request::GetFeatures,
        Request::SetFeatures(1 << 34),
        Request::SetMemoryTable(vec![region(1), region(2)]),
        Request::SetMemoryTable(vec![]),
        Request::SetLogBase(Log { length: 1, offset: 2 }),
        Request::SetRingBase(ring),
        Request::SetRingAddresses(RingAddresses {
            index: 1,
            flags: 1,
            descriptors: 2,
            used: 3,
            available: 4,
            log: 5,
        }),
        Request::SetRingKick(RingDescriptor { index: 255, has_descriptor: false }),
        Request::SetRingCall(RingDescriptor { index: 0, has_descriptor: true }),
        Request::GetInflight(inflight),
        Request::AddMemoryRegion(region(9)),
        Request::GetStatus,
    ]
}

#[test]
fn requests_come_as_they_were_sent() {
    for request in samples() {
        assert_eq!(Request::decode(request.number(), &request.encode()), Ok(request));
    }
}

#[test]
fn wrong_lengths_are_refused() {
    for request in samples() {
        let mut bytes = request.encode();
        // A table of memory may have more room than regions.
        if !matches!(request, Request::SetMemoryTable(_)) {
            bytes.push(0);
            assert!(Request::decode(request.number(), &bytes).is_err(), "{request:?}");
            bytes.pop();
        }
        if bytes.pop().is_some() && !matches!(request, Request::GetInflight(_)) {
            assert!(Request::decode(request.number(), &bytes).is_err(), "{request:?}");
        }
    }
    let mut table = samples()[2].encode();
    table[0] = 9;
    assert_eq!(Request::decode(5, &table), Err(MessageError::Regions(9)));
    assert_eq!(Request::decode(99, &[]), Err(MessageError::Unknown(99)));
}

/// Offsets as `struct VhostUserMsg` of DPDK's `lib/vhost/vhost_user.h` has them.
#[test]
fn headers_are_laid_out_as_specified() {
    let header = Header { request: 11, is_reply: false, needs_reply: true, length: 8 };
    let bytes: Vec<u8> = [11_u32, 9, 8].into_iter().flat_map(u32::to_ne_bytes).collect();
    assert_eq!(header.encode()[..], bytes);
    assert_eq!(Header::decode(header.encode()), Ok(header));
    let reply = Reply::Ring(RingState { index: 1, value: 2 }).encode(11);
    let words: Vec<u8> = [11_u32, 5, 8, 1, 2].into_iter().flat_map(u32::to_ne_bytes).collect();
    assert_eq!(reply, words);
    for (flags, length) in [(0_u32, 0_u32), (2, 0), (1, 513)] {
        let bytes: Vec<u8> = [1, flags, length].into_iter().flat_map(u32::to_ne_bytes).collect();
        assert!(Header::decode(bytes.try_into().unwrap()).is_err());
    }
}

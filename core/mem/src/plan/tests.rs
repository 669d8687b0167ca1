use super::*;
use proptest::prelude::*;

const fn shape(level: u8, kibibytes: usize, ways: usize) -> CacheShape {
    CacheShape { level, sets: kibibytes * 1024 / (ways * 64), ways, line: 64 }
}

const L1: CacheShape = shape(1, 32, 8);
const L2: CacheShape = shape(2, 1024, 8);
/// The cache of the worked example in the blog post that the module cites.
const EXAMPLE: CacheShape = CacheShape { level: 1, sets: 4, ways: 4, line: 64 };

/// First and second level of real machines.
const MACHINES: [(&str, CacheShape, CacheShape); 8] = [
    ("Intel Skylake-SP", shape(1, 32, 8), shape(2, 1024, 16)),
    ("Intel Ice Lake-SP", shape(1, 48, 12), shape(2, 1280, 20)),
    ("Intel Sapphire Rapids", shape(1, 48, 12), shape(2, 2048, 16)),
    ("AMD Zen 3", shape(1, 32, 8), shape(2, 512, 8)),
    ("AMD Zen 4", shape(1, 32, 8), shape(2, 1024, 8)),
    ("AMD Zen 5", shape(1, 48, 12), shape(2, 1024, 16)),
    ("Arm Neoverse N1, the blog post's", shape(1, 64, 4), shape(2, 1024, 8)),
    ("Arm Cortex-A72", shape(1, 32, 2), shape(2, 1024, 16)),
];

fn request(needed: usize, caches: &[CacheShape]) -> Request<'_> {
    Request { needed, headroom: 128, caches, memory: None, demands: Demands::POOL }
}

fn plan(needed: usize, caches: &[CacheShape]) -> Plan {
    Plan::new(&request(needed, caches)).unwrap()
}

#[test]
fn a_power_of_two_folds_headers_onto_few_sets() {
    let plan = Plan::with_stride(2_048, 0, 2_048, &[L1]);
    // Headers fall into sets 0 and 32, data lines right behind them.
    assert_eq!(plan.spreads[0].unused_sets(), 60);
    assert!(plan.spreads[0].kept() < 0.1, "{}", plan.spreads[0].kept());
}

#[test]
fn real_caches_are_used_whole_at_the_cost_of_at_most_a_line() {
    for (name, l1, l2) in MACHINES {
        for needed in [512, 1_024, 1_984, 2_048, 2_240, 2_304, 4_096, 9_216] {
            let plan = plan(needed, &[l1, l2]);
            let case = format!("{name}, {needed}: {}", plan.explanation());
            assert!(plan.stride >= needed && plan.stride <= needed + 64, "{case}");
            for spread in &plan.spreads {
                assert_eq!(spread.unused_sets(), 0, "{case}");
                assert!(spread.kept() > 0.99, "{case}");
            }
        }
    }
}

#[test]
fn padding_wastes_less_than_a_line_in_every_buffer_mostly() {
    for (name, l1, l2) in MACHINES {
        let caches = [l1, l2];
        let mut request = request(2_304, &caches);
        request.demands.constant_stride = false;
        let plan = Plan::new(&request).unwrap();
        assert!(plan.kept() > 0.99, "{name}: {}", plan.explanation());
        // Two ways leave so little space for uneven sets that nothing but an odd stride will do.
        if l1.ways == 2 {
            assert_eq!(plan.layout(), Layout::constant(2_368), "{name}");
            continue;
        }
        assert_eq!(plan.padding.map(|padding| (plan.stride, padding.bytes)), Some((2_304, 64)), "{name}");
        assert!(plan.waste() <= 32.0, "{name}: {}", plan.explanation());
        assert!(plan.explanation().contains("The second wastes less"), "{}", plan.explanation());
    }
    // Odd already: both waste nothing or next to it, and the simpler one wins.
    let caches = [L1, L2];
    let mut request = request(2_240, &caches);
    request.demands.constant_stride = false;
    assert_eq!(Plan::new(&request).unwrap().layout(), Layout::constant(2_240));
}

#[test]
fn a_pool_is_told_what_padding_would_have_saved() {
    let plan = plan(2_304, &[L1, L2]);
    assert_eq!(plan.layout(), Layout::constant(2_368));
    let [constant, padded] = plan.weighed[..] else { panic!("{:?}", plan.weighed) };
    assert!(constant.allowed && !padded.allowed);
    assert!((constant.waste - 64.0).abs() < 1e-9 && padded.waste <= 16.0, "{padded:?}");
    assert!(plan.explanation().contains("The second would waste less"), "{}", plan.explanation());
}

#[test]
fn the_blog_post_example() {
    // 128-byte buffers of which one line is touched: sets 0 and 2 only.
    let spread = Spread::of(EXAMPLE, 128, 0);
    assert_eq!(spread.histogram, [8, 0, 8, 0]);
    // One more line between them reaches all four.
    assert_eq!(Spread::of(EXAMPLE, 192, 0).unused_sets(), 0);
    // And so does the post's own remedy, one line after eight buffers, as far as the ninth buffer goes.
    let padded = Layout { stride: 128, padding: Some(Padding { every_log2: 3, bytes: 64 }) };
    assert_eq!((padded.offset(7), padded.offset(8), padded.offset(9)), (896, 0x440, 0x4c0));
    let every_fourth = Layout { stride: 128, padding: Some(Padding { every_log2: 2, bytes: 64 }) };
    assert_eq!(Spread::of_layout(EXAMPLE, every_fourth, 0).histogram, [4, 4, 4, 4]);
}

#[test]
fn sets_that_are_no_power_of_two() {
    let odd = CacheShape { level: 2, sets: 1_280, ways: 20, line: 64 };
    let plan = plan(5 * 64 * 8, &[odd]);
    assert!(plan.spreads[0].kept() > 0.99, "{}", plan.explanation());
}

#[test]
fn no_known_cache_still_gives_an_odd_stride() {
    assert_eq!(plan(2_048, &[]).stride / 64 % 2, 1);
}

#[test]
fn last_level_caches_are_named_and_not_counted() {
    let l3 = CacheShape { level: 3, sets: 32_768, ways: 16, line: 64 };
    let plan = plan(2_240, &[L1, L2, l3]);
    assert_eq!((plan.spreads.len(), &plan.hashed[..]), (2, &[l3][..]));
    assert!(plan.explanation().contains("does not publish"), "{}", plan.explanation());
}

#[test]
fn longer_lines_are_never_shared_by_two_buffers() {
    let l1 = CacheShape { level: 1, sets: 64, ways: 4, line: 128 };
    let plan = plan(2_112, &[l1]);
    assert!(plan.stride.is_multiple_of(128) && plan.spreads[0].unused_sets() == 0, "{}", plan.stride);
}

#[test]
fn channels_get_their_turn() {
    let caches = [L1, L2];
    let memory = |channels, ranks| Some(MemoryChannels { channels, ranks, interleave: 64 });
    // 2,304 bytes are 36 lines: DPDK would lengthen them for 4 channels, and for 12 also what 35 + 64 could not serve.
    for (channels, ranks) in [(2, 1), (4, 1), (4, 2), (6, 2), (8, 2), (12, 2), (10, 1)] {
        let request = Request { memory: memory(channels, ranks), ..request(2_304, &caches) };
        let plan = Plan::new(&request).unwrap();
        let used = plan.channels.as_ref().unwrap().used();
        assert!((used - 1.0).abs() < 1e-9, "{channels} × {ranks}: {} uses {used}", plan.stride);
        assert!(plan.kept() > 0.99);
    }
    // 39 lines have 3 in common with 12 banks, 41 nothing.
    let request = Request { memory: memory(12, 1), ..request(39 * 64, &caches) };
    assert_eq!(Plan::new(&request).unwrap().stride, 41 * 64);
}

#[test]
fn demands_of_ports_are_met() {
    let caches = [L1, L2];
    let ask =
        |needed, headroom, demands| Plan::new(&Request { headroom, demands, ..request(needed, &caches) });
    let aligned = Demands::xdp_aligned(2_048).unwrap().and(Demands::POOL);
    let plan = ask(2_048, 256, aligned).unwrap();
    assert_eq!(plan.layout(), Layout::constant(2_048));
    assert!(plan.explanation().contains("unaligned chunks would not"), "{}", plan.explanation());
    assert_eq!(
        ask(2_112, 256, aligned),
        Err(PlanError::NoStride { needed: 2_112, alignment: 2_048, largest: 2_048 })
    );
    assert_eq!(ask(2_048, 128, aligned), Err(PlanError::Headroom { headroom: 128, demanded: 256 }));
    assert_eq!(Demands::xdp_aligned(3_072), Err(PlanError::Chunk { chunk: 3_072 }));
    // Unaligned chunks spread, up to a base page.
    let unaligned = Demands::XDP_UNALIGNED.and(Demands::MEMIF).and(Demands::POOL);
    let plan = ask(2_368, 256, unaligned).unwrap();
    assert_eq!((plan.stride, plan.lost()), (2_368, 0));
    assert_eq!(ask(4_096, 256, unaligned).unwrap().stride, 4_096, "nothing longer is allowed");
    assert!(matches!(ask(4_160, 256, unaligned), Err(PlanError::NoStride { .. })));
    // Memif's offsets have 32 bits.
    assert_eq!(plan.region_bytes(65_536), Ok(65_536 * 2_368));
    assert!(matches!(plan.region_bytes(2_000_000), Err(PlanError::Region { buffers: 2_000_000, .. })));
    assert_eq!(ask(2_240, 128, Demands::VHOST_USER).unwrap().stride, 2_240);
}

#[test]
fn what_makes_no_sense_is_told() {
    let fails = |request: &Request<'_>| Plan::new(request).unwrap_err();
    assert_eq!(fails(&request(3 << 20, &[])), PlanError::LargerThanPage { needed: 3 << 20, page: 2 << 20 });
    assert_eq!(fails(&request(64, &[])), PlanError::NoSpace { needed: 64 });
    for alignment in [0, 32, 96] {
        let demands = Demands { alignment, ..Demands::POOL };
        assert_eq!(fails(&Request { demands, ..request(2_240, &[]) }), PlanError::Alignment { alignment });
    }
    let nonsense: [(&[CacheShape], u8); 8] = [
        (&[CacheShape { sets: 0, ..L1 }], 1),
        (&[CacheShape { ways: 0, ..L1 }], 1),
        (&[CacheShape { line: 48, ..L1 }], 1),
        (&[CacheShape { level: 5, ..L1 }], 5),
        (&[CacheShape { sets: usize::MAX, ..L1 }], 1),
        (&[L1, L1], 1),
        (&[CacheShape { level: 1, ..L2 }, CacheShape { level: 2, ..L1 }], 2),
        (&[L1, CacheShape { line: 128, ..L2 }], 2),
    ];
    for (caches, level) in nonsense {
        assert!(
            matches!(fails(&request(2_240, caches)), PlanError::Cache { level: told, .. } if told == level),
            "{caches:?}"
        );
    }
    for (channels, ranks, interleave) in [(0, 1, 64), (4, 0, 64), (4, 1, 48), (4_096, 1, 64)] {
        let memory = Some(MemoryChannels { channels, ranks, interleave });
        assert_eq!(
            fails(&Request { memory, ..request(2_240, &[]) }),
            PlanError::Channels { channels, ranks, interleave }
        );
    }
    let caches = [L1];
    assert!(matches!(Plan::given(&request(2_240, &caches), 2_048), Err(PlanError::Stride { .. })));
    assert_eq!(Plan::given(&request(2_240, &caches), 2_304).unwrap().stride, 2_304);
}

#[test]
fn this_machine_s_caches_make_sense() {
    let caches = CacheShape::of_this_machine();
    assert_eq!(CacheShape::check_all(&caches), Ok(()));
    let plan = Plan::for_this_machine(2_240, 128);
    assert!(plan.stride >= 2_240 && plan.stride.is_multiple_of(64));
}

/// Hot lines lost at a stride, counted without the planner: each line's set from its address alone.
fn lost_by_counting(shape: CacheShape, stride: usize, data_offset: usize) -> usize {
    let mut sets = std::collections::HashMap::<usize, usize>::new();
    for buffer in 0..shape.lines() / 2 {
        for address in [buffer * stride, buffer * stride + data_offset] {
            *sets.entry((address >> shape.line.ilog2()) % shape.sets).or_default() += 1;
        }
    }
    sets.values().map(|lines| lines.saturating_sub(shape.ways)).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// No stride in reach loses a per cent less, and none that loses as little is shorter.
    #[test]
    fn no_stride_in_reach_is_better(
        lines in 2_usize..80,
        headdata_lines in 0_usize..8,
        sets_log2 in 4_u32..9,
        triple in any::<bool>(),
        ways in 2_usize..17,
    ) {
        let sets = (1 << sets_log2) * if triple { 3 } else { 1 };
        let l1 = CacheShape { level: 1, sets, ways, line: 64 };
        let needed = (lines + headdata_lines) * 64;
        let headroom = headdata_lines * 64;
        let caches = [l1];
        let plan = Plan::new(&Request { headroom, ..request(needed, &caches) }).unwrap();
        let per_cent = |stride| lost_by_counting(l1, stride, 64 + headroom) * 100 / l1.lines();
        prop_assert_eq!(plan.lost(), lost_by_counting(l1, plan.stride, 64 + headroom));
        for stride in (needed..=needed + LINES_MORE * 64).step_by(64) {
            let better = per_cent(stride) < per_cent(plan.stride);
            let as_good_and_shorter = per_cent(stride) == per_cent(plan.stride) && stride < plan.stride;
            prop_assert!(!better && !as_good_and_shorter, "{} instead of {}", stride, plan.stride);
        }
    }

    /// Buffers never overlap, and start where they must.
    #[test]
    fn buffers_stand_apart(needed in 65_usize..20_000, every_log2 in 0_u32..12, index in 0_usize..100_000) {
        let caches = [L1, L2];
        let mut request = request(needed, &caches);
        request.demands.constant_stride = every_log2 % 2 == 0;
        let layout = Plan::new(&request).unwrap().layout();
        prop_assert!(layout.offset(index + 1) - layout.offset(index) >= needed);
        prop_assert!(layout.offset(index).is_multiple_of(64));
    }
}

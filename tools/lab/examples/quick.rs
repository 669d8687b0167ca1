fn main() {
    let a = std::env::args().nth(1);
    for burst in [64] {
        for b in warmlane_lab::bench::list().iter().filter(|b| a.as_deref().is_none_or(|a| a == b.name)) {
            let s = b
                .run(
                    &warmlane_lab::bench::Options { burst: Some(burst), ..Default::default() },
                    3000,
                    std::time::Duration::from_micros(200),
                )
                .unwrap();
            println!("{burst} {} min {:.2} med {:.2} max {:.2}", s.name, s.minimum, s.median, s.maximum);
        }
    }
}

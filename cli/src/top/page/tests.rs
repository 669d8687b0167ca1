//! Pages of made-up views.

use super::*;

fn view() -> View {
    let port = |name: &str, rate: f64| Port {
        name: name.to_owned(),
        received: Traffic { packets: rate, bits: Some(8.0 * rate) },
        sent: Traffic { packets: 1234.0, bits: None },
    };
    let lane =
        Lane { name: "lane0".to_owned(), packets: 5.0, busy: Some(0.5), asleep: None, cycles: Some(87.25) };
    let drop = |reason: &str, severity: &str, rate: f64| Dropped {
        reason: reason.to_owned(),
        severity: severity.to_owned(),
        place: "a-very-long-lane forwarder".to_owned(),
        rate,
        total: 9,
    };
    View {
        ports: (0..20).map(|number| port(&format!("port{number:02}"), f64::from(number))).collect(),
        lanes: vec![lane],
        drops: vec![drop("old", "loss", 0.0), drop("no-route", "warning", 2.0), drop("full", "loss", 1.0)],
        pools: vec![Pool {
            name: "packets".to_owned(),
            buffers: 8192,
            outstanding: 4096,
            most: 4100,
            refused: 0.0,
        }],
        events: vec![Event { age: Duration::from_secs(61), text: "port x is gone".to_owned(), is_bad: true }],
        ..View::default()
    }
}

fn texts(lines: &[Line]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}

#[test]
fn a_small_screen_has_something_of_everything() {
    for height in 0..60 {
        let lines = view().lines(Choice::default(), height);
        assert!(lines.len() <= height, "{height}: {lines:?}");
        assert!(lines.iter().all(|line| line.text.chars().count() <= 78), "{:#?}", texts(&lines));
    }
    let lines = view().lines(Choice::default(), 14);
    assert_eq!(
        texts(&lines),
        [
            "port (+17, key 1)         received/s        bits/s        sent/s        bits/s",
            "port19                            19           152         1.23k             -",
            "port18                            18           144         1.23k             -",
            "port17                            17           136         1.23k             -",
            "lane                       packets/s          busy        asleep cycles/packet",
            "lane0                            5.0        50.0 %             -          87.2",
            "drops                      packets/s           all  severity  by",
            "no-route                         2.0             9  warning   …-lane forwarder",
            "full                             1.0             9  loss      …-lane forwarder",
            "old                                0             9  loss      …-lane forwarder",
            "pool                      in packets    most taken       buffers     refused/s",
            "packets                 4096  50.0 %          4100          8192             0",
            "event",
            "     1:01  port x is gone",
        ]
    );
    assert_eq!(view().lines(Choice::default(), usize::MAX).len(), 35, "all of it, as for a pipe");
    let roomy = view().lines(Choice::default(), 35);
    assert_eq!((roomy.len(), texts(&roomy)[21]), (35, ""), "{:#?}", texts(&roomy));
    assert!(texts(&view().lines(Choice::default(), 34)).iter().all(|text| !text.is_empty()));
}

#[test]
fn rows_are_in_the_order_that_is_wanted_and_can_be_skipped() {
    let first = |order, skipped| {
        let choice = Choice { section: Section::Ports, order, skipped };
        let lines = view().lines(choice, 3);
        assert_eq!(lines.len(), 3);
        lines[1].text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(first(Order::ByRate, 0), ["port19", "19", "152", "1.23k", "-"]);
    assert_eq!(first(Order::AsListed, 0)[0], "port00");
    assert_eq!(first(Order::ByRate, 5)[0], "port14");
    let empty = view().lines(Choice { section: Section::Stages, ..Choice::default() }, 10);
    assert_eq!(texts(&empty)[1], "  nothing");
}

#[test]
fn only_what_is_dropped_now_stands_out() {
    let lines = view().lines(Choice { section: Section::Drops, ..Choice::default() }, 10);
    let styles: Vec<Style> = lines.iter().map(|line| line.style).collect();
    assert_eq!(styles, [Style::Head, Style::Warning, Style::Loss, Style::Row]);
}

#[test]
fn numbers_are_short() {
    for (number, text) in [
        (0.0, "0"),
        (0.25, "0.2"),
        (9.0, "9.0"),
        (999.4, "999"),
        (999.5, "1.00k"),
        (12_345.0, "12.3k"),
        (999_499.0, "999k"),
        (14_880_952.0, "14.9M"),
        (1e11, "100G"),
        (2.5e12, "2.5T"),
    ] {
        assert_eq!(short(number), text);
    }
    assert_eq!(
        (time(999.0), time(1500.0), time(2e9)),
        ("999 ns".to_owned(), "1.5 us".to_owned(), "2.0 s".to_owned())
    );
    assert_eq!(known(None, percent), "-");
    assert_eq!(age(Duration::from_millis(59_900)), "59.9 s");
    assert_eq!(age(Duration::from_secs(3_661)), "1:01:01");
    assert_eq!(cut("a-very-long-name", 6), "…-name");
}

//! Drawings on a terminal in memory, which has no clock and no size but the one that is said.

use super::super::made_up::{dropped, stats, value};
use super::super::model::Model;
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};

fn press(screen: &mut Screen, code: KeyCode) -> Action {
    screen.key(KeyEvent::new(code, KeyModifiers::NONE), &View::default())
}

fn buffer(screen: &Screen, (width, height): (u16, u16), watched: Watched<'_>, view: &View) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame, watched, view)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let cells: Vec<&str> = buffer.content().iter().map(Cell::symbol).collect();
    let rows = cells.chunks(usize::from(buffer.area.width));
    rows.map(|row| row.concat().trim_end().to_owned()).collect()
}

fn drawn(screen: &Screen) -> String {
    lines(&buffer(screen, (80, 24), Watched::default(), &View::default())).join("\n")
}

/// A forwarder that drops, in two looks.
fn view() -> View {
    let mut model = Model::default();
    for times in [1, 2] {
        let queue = |direction, name, count| {
            value(&[("port", "west"), ("direction", direction), ("queue", "0")], "queue", name, count * times)
        };
        let lane = |name, count| value(&[("lane", "lane0")], "lane", name, count * times);
        let stage =
            |name, count| value(&[("lane", "lane0"), ("stage", "forwarder")], "stage", name, count * times);
        let pool = |name, count| value(&[("pool", "packets")], "pool", name, count);
        model.take(stats(
            60 * times,
            vec![
                queue("receive", "packets", 60_000),
                queue("receive", "bytes", 3_600_000),
                queue("transmit", "packets", 30_000),
                queue("transmit", "bytes", 1_800_000),
                lane("packets", 60_000),
                lane("busy-cycles", 6_000_000),
                lane("idle-cycles", 18_000_000),
                lane("asleep-cycles", 0),
                stage("processed", 60_000),
                stage("made", 0),
                dropped("lane0", "no-route", 30_000 * times),
                pool("buffers", 16_384),
                pool("outstanding", 512),
                pool("lowest", 15_360),
                pool("refused", 0),
            ],
        ));
    }
    model.view()
}

#[test]
fn a_terminal_of_80_by_24_has_it_all() {
    let watched = Watched { name: "f (forward 0.1.0, process 7)", silence: None };
    let shown = lines(&buffer(&Screen::new(true), (80, 24), watched, &view()));
    assert_eq!(
        shown,
        [
            "f (forward 0.1.0, process 7)  2:00  all, by rate",
            "port                      received/s        bits/s        sent/s        bits/s",
            "west                           1.00k          480k           500          240k",
            "",
            "lane                       packets/s          busy        asleep cycles/packet",
            "lane0                          1.00k        25.0 %         0.0 %         100.0",
            "",
            "drops                      packets/s           all  severity  by",
            "no-route                         500         60000  warning   lane0 forwarder",
            "",
            "pool                      in packets    most taken       buffers     refused/s",
            "packets                  512   3.1 %          1024         16384             0",
            "",
            "stage                      packets/s        made/s cycles/packet         share",
            "lane0 forwarder                1.00k             0             -             -",
            "",
            "event",
            "     2:00  drops of no-route: Why.",
            "",
            "",
            "",
            "",
            "",
            "0-7 section  s sort  space freeze  i instance  ? help  q quit",
        ]
    );
}

#[test]
fn keys_choose_sort_freeze_and_end() {
    let mut screen = Screen::new(true);
    press(&mut screen, KeyCode::Char('4'));
    assert_eq!(screen.choice.section, Section::Drops);
    press(&mut screen, KeyCode::Tab);
    assert_eq!(screen.choice.section, Section::Pools);
    press(&mut screen, KeyCode::Char('9'));
    press(&mut screen, KeyCode::Char('s'));
    press(&mut screen, KeyCode::Char(' '));
    let text = drawn(&screen);
    assert!(text.contains("pools, as listed  FROZEN"), "{text}");
    let later = lines(&buffer(&screen, (80, 24), Watched::default(), &view())).join("\n");
    assert!(later.contains("  nothing") && !later.contains("16384"), "it is frozen: {later}");
    press(&mut screen, KeyCode::Char(' '));
    assert!(!drawn(&screen).contains("FROZEN"));
    press(&mut screen, KeyCode::Char('?'));
    assert!(drawn(&screen).contains("this help"));
    assert_eq!(press(&mut screen, KeyCode::Esc), Action::None, "it closes the help");
    assert_eq!(press(&mut screen, KeyCode::Esc), Action::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.key(interrupt, &View::default()), Action::Quit);
}

#[test]
fn one_section_can_be_scrolled_to_its_last_row() {
    let mut screen = Screen::new(true);
    let view = view();
    screen.key(KeyEvent::new(KeyCode::Char('4'), KeyModifiers::NONE), &view);
    for _ in 0..3 {
        screen.key(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE), &view);
    }
    assert_eq!(screen.choice.skipped, 0, "its only row stays");
    press(&mut screen, KeyCode::Up);
    assert_eq!(screen.choice.skipped, 0);
}

#[test]
fn an_instance_is_chosen_from_the_list() {
    let mut screen = Screen::new(true);
    assert_eq!(press(&mut screen, KeyCode::Char('i')), Action::Choose);
    let candidate = |name: &str| (name.to_owned(), PathBuf::from(name));
    screen.choose(vec![candidate("one"), candidate("two")]);
    press(&mut screen, KeyCode::Down);
    press(&mut screen, KeyCode::Down);
    assert!(drawn(&screen).contains("> two"));
    assert_eq!(press(&mut screen, KeyCode::Enter), Action::Switch(PathBuf::from("two")));
    screen.choose((0..50).map(|number| candidate(&format!("number {number}"))).collect());
    (0..49).for_each(|_| drop(press(&mut screen, KeyCode::Down)));
    assert!(drawn(&screen).contains("> number 49"), "{}", drawn(&screen));
    screen.choose(Vec::new());
    assert!(drawn(&screen).contains("no instance has"));
    assert_eq!(press(&mut screen, KeyCode::Enter), Action::None);
}

#[test]
fn a_window_that_is_too_small_says_so() {
    let mut screen = Screen::new(true);
    press(&mut screen, KeyCode::Char('?'));
    for size in [(1, 1), (3, 2), (78, 12), (300, 100)] {
        buffer(&screen, size, Watched::default(), &view());
    }
    for size in [(77, 24), (80, 11)] {
        let text = lines(&buffer(&screen, size, Watched::default(), &view())).join(" ");
        let said = format!("too small: {} by {}, and 78 by 12 are needed", size.0, size.1);
        assert!(text.contains(&said), "{text}");
    }
}

#[test]
fn who_falls_silent_is_said_to_be_and_the_last_figures_fade() {
    let watched = Watched { name: "f (forward)", silence: Some("nobody answers at \"f.sock\"") };
    let buffer = buffer(&Screen::new(true), (80, 24), watched, &view());
    let shown = lines(&buffer);
    assert!(shown[0].starts_with("NO ANSWER  f (forward)"), "{}", shown[0]);
    assert_eq!(shown[23], "nobody answers at \"f.sock\"");
    assert!(
        buffer[(0, 8)].modifier.contains(Modifier::DIM) && buffer[(0, 8)].fg == Color::Reset,
        "{}",
        shown[8]
    );
}

#[test]
fn there_are_no_colours_if_they_are_not_wanted() {
    for silence in [None, Some("gone")] {
        let watched = Watched { name: "f", silence };
        let buffer = buffer(&Screen::new(false), (80, 24), watched, &view());
        assert!(buffer.content().iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset)));
    }
    let with = buffer(&Screen::new(true), (80, 24), Watched::default(), &view());
    assert_eq!((with[(0, 1)].fg, with[(0, 8)].fg), (Color::Cyan, Color::Yellow));
}

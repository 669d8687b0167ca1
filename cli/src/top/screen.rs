//! What keys do, and how the page looks on a terminal.

use super::page::{self, Choice, Order, Section, Style};
use super::view::View;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style as Look};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
use std::path::PathBuf;

/// The narrowest and lowest window that everything can be read in.
const LEAST: (u16, u16) = (78, 12);

/// Who is looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watched<'a> {
    /// What it is.
    pub(super) name: &'a str,
    /// Why nothing is heard of it, if so.
    pub(super) silence: Option<&'a str>,
}

/// What a key asks of others.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    None,
    Quit,
    /// Show the list of instances: find them first.
    Choose,
    /// Look at the instance with this socket.
    Switch(PathBuf),
}

/// An instance to choose: what it is, and its socket.
pub(super) type Candidate = (String, PathBuf);

/// What lies over the page.
#[derive(Debug, Default, PartialEq, Eq)]
enum Over {
    #[default]
    Nothing,
    Help,
    Chooser(Vec<Candidate>, usize),
}

/// What is seen.
#[derive(Debug, Default)]
pub(super) struct Screen {
    choice: Choice,
    /// What was there when it was frozen.
    frozen: Option<View>,
    over: Over,
    has_colour: bool,
}

const HELP: [&str; 13] = [
    "0 to 7      all; ports, lanes, stages, drops, pools, latency, events",
    "Tab         the next of these",
    "s           sort: busiest first, or in the instance's order",
    "Up, Down    scroll in one of 1 to 7",
    "Space       freeze, and go on",
    "i           choose another instance",
    "?, h        this help",
    "q, Esc      end; or close what is open",
    "",
    "Rates are those between the last two looks. Cycles are of the time-stamp",
    "counter; a dash is what this instance doesn't measure. A lane is busy in",
    "polls that move packets. Most taken: the highest number of buffers in use at",
    "once, in packets or lanes' reserves. 99 % of packets took no longer than said.",
];

impl Screen {
    pub(super) fn new(has_colour: bool) -> Self {
        Self { has_colour, ..Self::default() }
    }

    /// Shows instances to choose from.
    pub(super) fn choose(&mut self, candidates: Vec<Candidate>) {
        self.over = Over::Chooser(candidates, 0);
    }

    /// Does what a key means; `view` is what is there now.
    pub(super) fn key(&mut self, key: KeyEvent, view: &View) -> Action {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Action::Quit;
        }
        match &mut self.over {
            Over::Nothing => self.on_page(key.code, view),
            Over::Help => {
                self.over = Over::Nothing;
                Action::None
            }
            Over::Chooser(candidates, at) => {
                match key.code {
                    KeyCode::Up => *at = at.saturating_sub(1),
                    KeyCode::Down => *at = (*at + 1).min(candidates.len().saturating_sub(1)),
                    KeyCode::Enter => {
                        let chosen = candidates.get(*at).map(|(_, path)| path.clone());
                        self.over = Over::Nothing;
                        self.frozen = None;
                        return chosen.map_or(Action::None, Action::Switch);
                    }
                    KeyCode::Esc | KeyCode::Char('q' | 'i') => self.over = Over::Nothing,
                    _ => {}
                }
                Action::None
            }
        }
    }

    fn on_page(&mut self, code: KeyCode, view: &View) -> Action {
        let choice = &mut self.choice;
        let show = |choice: &mut Choice, section| *choice = Choice { section, skipped: 0, ..*choice };
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Char('i') => return Action::Choose,
            KeyCode::Char('?' | 'h') => self.over = Over::Help,
            KeyCode::Char(' ') => self.frozen = if self.frozen.is_some() { None } else { Some(view.clone()) },
            KeyCode::Char('s') => {
                choice.order = if choice.order == Order::ByRate { Order::AsListed } else { Order::ByRate };
            }
            KeyCode::Char(digit) => {
                let number = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok());
                if let Some(section) = number.and_then(|number| Section::ORDER.get(number)) {
                    show(choice, *section);
                }
            }
            KeyCode::Tab => {
                let at = Section::ORDER.iter().position(|section| *section == choice.section).unwrap_or(0);
                let next = (at + 1) % Section::ORDER.len();
                show(choice, Section::ORDER.get(next).copied().unwrap_or_default());
            }
            KeyCode::Up => choice.skipped = choice.skipped.saturating_sub(1),
            KeyCode::Down => {
                let rows = view.lines(Choice { skipped: 0, ..*choice }, usize::MAX).len().saturating_sub(1);
                choice.skipped = (choice.skipped + 1).min(rows.saturating_sub(1));
            }
            _ => {}
        }
        Action::None
    }

    /// Draws all of it.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, watched: Watched<'_>, now: &View) {
        let area = frame.area();
        if area.width < LEAST.0 || area.height < LEAST.1 {
            let text = format!(
                "This window is too small: {} by {}, and {} by {} are needed. q quit",
                area.width, area.height, LEAST.0, LEAST.1
            );
            frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
            return;
        }
        let [top, middle, bottom] = rows(area);
        let view = self.frozen.as_ref().unwrap_or(now);
        let (title, style) = self.title(watched, view);
        frame.render_widget(Paragraph::new(title).style(self.look(style)), top);
        let lines = view.lines(self.choice, usize::from(middle.height)).into_iter().map(|line| {
            // What was true before it fell silent isn't any more.
            let style =
                if watched.silence.is_some() && line.style != Style::Head { Style::Dim } else { line.style };
            Line::styled(line.text, self.look(style))
        });
        frame.render_widget(Paragraph::new(lines.collect::<Text<'_>>()), middle);
        let keys = "0-7 section  s sort  space freeze  i instance  ? help  q quit";
        let last = match watched.silence {
            Some(reason) => Line::styled(reason.to_owned(), self.look(Style::Loss)),
            None => Line::styled(keys, self.look(Style::Dim)),
        };
        frame.render_widget(Paragraph::new(last), bottom);
        match &self.over {
            Over::Nothing => {}
            Over::Help => draw_over(frame, " keys ", HELP.iter().map(|line| (*line).to_owned()).collect()),
            Over::Chooser(candidates, at) => {
                let mark = |(index, (text, _)): (usize, &Candidate)| {
                    format!("{} {text}", if index == *at { ">" } else { " " })
                };
                let mut lines: Vec<String> = candidates.iter().enumerate().map(mark).collect();
                if lines.is_empty() {
                    lines.push("no instance has its control socket in the usual place".to_owned());
                }
                // The chosen one is in sight, also at the end of a long list.
                let space = usize::from(area.height.saturating_sub(2));
                lines.drain(..(at + 1).saturating_sub(space));
                draw_over(frame, " instances: Up, Down, Enter ", lines);
            }
        }
    }

    fn title(&self, watched: Watched<'_>, view: &View) -> (String, Style) {
        let order = if self.choice.order == Order::ByRate { "by rate" } else { "as listed" };
        let frozen = if self.frozen.is_some() { "  FROZEN" } else { "" };
        let (age, section) = (page::age(view.age), self.choice.section.name());
        let text = format!("{}  {age}  {section}, {order}{frozen}", watched.name);
        match watched.silence {
            Some(_) => (format!("NO ANSWER  {text}"), Style::Alarm),
            None => (text, Style::Title),
        }
    }

    /// Without colour, what stands out does so by its weight.
    fn look(&self, style: Style) -> Look {
        let plain = Look::default();
        let coloured = |look: Look, colour| if self.has_colour { look.fg(colour) } else { look };
        match style {
            Style::Title => plain.add_modifier(Modifier::REVERSED),
            Style::Alarm => coloured(plain.add_modifier(Modifier::REVERSED | Modifier::BOLD), Color::Red),
            Style::Head => coloured(plain.add_modifier(Modifier::BOLD), Color::Cyan),
            Style::Row => plain,
            Style::Warning => coloured(plain.add_modifier(Modifier::BOLD), Color::Yellow),
            Style::Loss => coloured(plain.add_modifier(Modifier::BOLD), Color::Red),
            Style::Dim => plain.add_modifier(Modifier::DIM),
        }
    }
}

/// A box in the middle, over all the rest.
fn draw_over(frame: &mut Frame<'_>, title: &'static str, lines: Vec<String>) {
    let area = frame.area();
    let widest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0).max(title.len());
    let width = u16::try_from(widest + 2).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let (x, y) = ((area.width - width) / 2, (area.height - height) / 2);
    let place = Rect { x: area.x + x, y: area.y + y, width, height };
    frame.render_widget(Clear, place);
    let text = lines.into_iter().map(Line::from).collect::<Text<'_>>();
    frame.render_widget(Paragraph::new(text).block(Block::bordered().title(title)), place);
}

/// The title's line, what is between, and the line of keys.
fn rows(area: Rect) -> [Rect; 3] {
    let line = |y: u16, height: u16| Rect {
        y: area.y + y,
        height: height.min(area.height.saturating_sub(y)),
        ..area
    };
    let middle = area.height.saturating_sub(2);
    [line(0, 1), line(1, middle), line(area.height.saturating_sub(1), 1)]
}

#[cfg(test)]
mod tests;

//! Pages for a browser and for paper: one HTML file each, with everything inside.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// How a page looks. Black on white with rules where tables need them, so that paper shows the same.
const STYLE: &str = "
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; }
h3 { break-after: avoid; }
h2 { margin-top: 3rem; break-after: avoid; border-top: 2px solid #1a1a1a; padding-top: 1rem; }
table { border-collapse: collapse; font-size: 0.9rem; margin: 1rem 0; }
th, td { padding: 0.25rem 0.75rem; border-bottom: 1px solid #ddd; text-align: right; vertical-align: top; }
th { border-bottom-color: #1a1a1a; }
th.text, td.text { text-align: left; }
.scroll { overflow-x: auto; }
svg { max-width: 100%; height: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.25rem 1rem; }
dt { font-weight: 600; }
dd { margin: 0; }
.kept { color: #00664a; } .not-kept { color: #a33c00; font-weight: 600; } .void { color: #666; }
nav a { margin-right: 1rem; white-space: nowrap; display: inline-block; }
.note { color: #555; font-size: 0.85rem; }
code { font-size: 0.85em; overflow-wrap: anywhere; }
figure { margin: 1rem 0; }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 0.3rem 0.75rem; align-items: center; font-size: 0.9rem; margin: 0.75rem 0; }
.bar { display: contents; }
.track { position: relative; height: 1rem; border-left: 1px solid #1a1a1a; }
.track span { position: absolute; }
.ratio { top: 0.15rem; left: 0; border-top: 0.7rem solid currentColor; opacity: 0.55; }
.interval { top: 0.45rem; border-top: 2px solid #1a1a1a; }
.promise { top: 0; height: 1rem; border-left: 2px solid #1a1a1a; }
.value { text-align: right; font-variant-numeric: tabular-nums; }
@media (max-width: 40rem) { .bars { grid-template-columns: 1fr max-content; } .name { grid-column: 1 / -1; } }
@page { size: A4; margin: 15mm; }
@media print {
  section { break-before: page; }
  .scroll { overflow: visible; }
  body { margin: 0; padding: 0; max-width: none; font-size: 10.5pt; }
  nav { display: none; }
  table { font-size: 8.5pt; }
  th, td { padding: 0.15rem 0.4rem; }
  tr, figure { break-inside: avoid; }
}
";

/// A whole page. `data` is put into it as JSON, for programs that want the figures; it must be JSON.
pub fn document(title: &str, body: &Markup, data: &str) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // No icon: without this a browser would ask a server for one.
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(one_line(STYLE))) }
            }
            body {
                h1 { (title) }
                (body)
                // In a script, "</" would end it and "<!--" would begin a comment; "<" is also "\u003c" in JSON.
                script type="application/json" id="data" { (PreEscaped(data.replace('<', "\\u003c"))) }
            }
        }
    }
    .into_string()
}

/// A picture that [`plot`](crate::plot) drew. It becomes one line, as the style does: their lines are alike in all pages, and
/// whoever compares pages would look through thousands of them.
pub fn picture(svg: &str) -> Markup {
    html! { figure { (PreEscaped(one_line(svg))) } }
}

/// Lines that need no white space between them, in one.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect()
}

/// A table; `text` says which columns hold names.
pub fn table(heads: &[String], rows: &[Vec<String>], text: impl Fn(usize) -> bool) -> Markup {
    let class = |column: usize| text(column).then_some("text");
    html! {
        div.scroll {
            table {
                thead { tr { @for (column, head) in heads.iter().enumerate() { th class=[class(column)] { (head) } } } }
                tbody {
                    @for row in rows {
                        tr { @for (column, cell) in row.iter().enumerate() { td class=[class(column)] { (cell) } } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_can_t_become_markup() {
        let page = document("a < b", &html! { p { ("<script>") } }, r#"{"text":"</script><!--"}"#);
        assert!(page.contains("<title>a &lt; b</title>") && page.contains("<p>&lt;script&gt;</p>"));
        assert_eq!(page.matches("</script>").count(), 1);
        assert!(page.contains(r#"{"text":"\u003c/script>\u003c!--"}"#));
    }

    #[test]
    fn what_pages_have_in_common_is_in_few_lines() {
        let picture = picture("<svg>\n<text x=\"1\">\nCost of a read\n</text>\n</svg>\n");
        assert!(picture.0.contains(r#"<svg><text x="1">Cost of a read</text></svg>"#), "{}", picture.0);
        let page = document("a", &picture, "{}");
        assert!(page.lines().count() < 6, "{page}");
    }

    #[test]
    fn tables_have_a_cell_for_each() {
        let heads = ["pool".to_owned(), "cycles".to_owned()];
        let rows = [vec!["ring".to_owned(), "1.50".to_owned()]];
        let text = table(&heads, &rows, |column| column == 0).into_string();
        assert!(text.contains(r#"<td class="text">ring</td><td>1.50</td>"#), "{text}");
    }
}

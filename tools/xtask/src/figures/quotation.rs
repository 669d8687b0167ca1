//! Quotations in a Markdown text, and whether they are right.

use serde_json::Value;

/// Stands behind the last figure of a line that a record of older code gave.
const OLDER: &str = "†";
/// Begins the line of a document that says what that means.
const LEGEND: &str = "† ";

/// What a text's check came to. Complaints have their line's number in front.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Checked {
    /// How many quotations there are.
    pub(super) quoted: usize,
    /// What differs from the records, and is right in `refilled`.
    pub(super) differing: Vec<String>,
    /// What else is wrong.
    pub(super) complaints: Vec<String>,
    /// The text with the records' figures.
    pub(super) refilled: String,
}

/// A record as it is quoted.
pub(super) struct Quoted {
    pub(super) record: Value,
    /// Whether its sources have changed since.
    pub(super) older: bool,
}

/// Checks each link into a JSON file; `read` gives the file's content.
pub(super) fn check(text: &str, read: impl Fn(&str) -> anyhow::Result<Quoted>) -> Checked {
    let mut checked = Checked::default();
    let (mut in_code, mut explained, mut marked) = (false, false, None);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let number = number + 1;
        in_code ^= line.trim_start().starts_with("```");
        explained |= line.starts_with(LEGEND);
        let mut rest = line;
        while let Some(quotation) = (!in_code).then(|| Quotation::first(rest)).flatten() {
            let Quotation { before, text, file, fragment, end } = quotation;
            checked.quoted += 1;
            checked.refilled += before;
            let link = &rest[before.len() + text.len()..end];
            rest = &rest[end..];
            let quoted = read(file);
            let right = quoted.as_ref().map_err(|error| format!("{error:#}"));
            let right = right.and_then(|quoted| {
                written(text, fragment, &quoted.record).map_err(|error| format!("{error:#}"))
            });
            match &right {
                Ok(right) if right == text => {}
                Ok(right) => checked.differing.push(format!(
                    "{number}: '{text}' is quoted, the record says '{right}' ({file}#{fragment})"
                )),
                Err(error) => checked.complaints.push(format!("{number}: {error} ({file}#{fragment})")),
            }
            checked.refilled += right.as_deref().unwrap_or(text);
            checked.refilled += link;
            let Ok(Quoted { older, .. }) = quoted else { continue };
            let mark = older && !cites(rest, file);
            let after = rest.strip_prefix(OLDER);
            if mark != after.is_some() {
                let what = if mark { "a figure of older code is not marked as one" } else { "no older code" };
                checked.differing.push(format!("{number}: {what} ('{OLDER}' behind it; {file})"));
            }
            rest = after.unwrap_or(rest);
            if mark {
                checked.refilled += OLDER;
                marked = marked.or(Some(number));
            }
        }
        checked.refilled += rest;
    }
    if let Some(line) = marked.filter(|_| !explained) {
        checked.complaints.push(format!(
            "{line}: figures of older code are marked, and no line that begins with '{LEGEND}' says what that means"
        ));
    }
    checked
}

/// Whether a line quotes this file.
fn cites(line: &str, file: &str) -> bool {
    let mut rest = line;
    while let Some(quotation) = Quotation::first(rest) {
        if quotation.file == file {
            return true;
        }
        rest = &rest[quotation.end..];
    }
    false
}

/// One link `[text](file.json#fragment)`.
struct Quotation<'a> {
    /// What comes before its text.
    before: &'a str,
    text: &'a str,
    file: &'a str,
    fragment: &'a str,
    /// Where the link ends.
    end: usize,
}

impl<'a> Quotation<'a> {
    fn first(line: &'a str) -> Option<Self> {
        let mut from = 0;
        loop {
            let middle = from + line[from..].find("](")?;
            let target = middle + 2;
            let end = target + line[target..].find(')')?;
            from = end;
            let (file, fragment) = line[target..end].split_once('#').unwrap_or_default();
            if std::path::Path::new(file).extension().is_none_or(|kind| kind != "json")
                || file.contains("://")
            {
                continue;
            }
            let start = line[..middle].rfind('[')? + 1;
            // Between two backquotes it is no link.
            if !line[..start].matches('`').count().is_multiple_of(2) {
                continue;
            }
            let (before, text) = (&line[..start], &line[start..middle]);
            return Some(Self { before, text, file, fragment, end: end + 1 });
        }
    }
}

/// What should be written instead of `text`: the record's figures, in the same form and with as many digits.
fn written(text: &str, fragment: &str, record: &Value) -> anyhow::Result<String> {
    let (path, factor) = match fragment.split_once('*') {
        Some((path, factor)) => {
            let factor = factor.parse::<f64>();
            (path, factor.map_err(|_| anyhow::anyhow!("'*' comes before a factor, such as *1e-6"))?)
        }
        None => (fragment, 1.0),
    };
    let value = find(record, path)?;
    let figures = match value {
        Value::String(words) => return Ok(words.clone()),
        Value::Number(number) => vec![number.as_f64()],
        Value::Object(spread) => {
            ["median", "min", "max"].iter().map(|name| spread.get(*name)?.as_f64()).collect()
        }
        _ => Vec::new(),
    };
    let figures: Option<Vec<f64>> = figures.into_iter().collect();
    let figures = figures.filter(|figures| !figures.is_empty());
    let figures =
        figures.ok_or_else(|| anyhow::anyhow!("'{path}' is no figure, word or spread in the record"))?;
    let mut figures = figures.into_iter().map(|figure| figure * factor);
    let mut right = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|letter: char| letter.is_ascii_digit()) {
        // A comma between digits groups thousands; one at the end is punctuation.
        let length = rest[start..]
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.' && letter != ',')
            .unwrap_or(rest.len() - start);
        let shown = rest[start..start + length].trim_end_matches(['.', ',']);
        let figure = figures
            .next()
            .ok_or_else(|| anyhow::anyhow!("'{text}' holds more figures than stand at '{path}'"))?;
        right += &rest[..start];
        right += &like(shown, figure);
        rest = &rest[start + shown.len()..];
    }
    if figures.next().is_some() {
        anyhow::bail!("'{text}' holds fewer figures than stand at '{path}'");
    }
    Ok(right + rest)
}

/// A figure with as many decimals as `shown` has, and thousands grouped if they are there.
fn like(shown: &str, figure: f64) -> String {
    let decimals = shown.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let plain = format!("{figure:.decimals$}");
    if !shown.contains(',') {
        return plain;
    }
    let (whole, fraction) =
        plain.split_once('.').map_or((plain.as_str(), ""), |(whole, _)| (whole, &plain[whole.len()..]));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

/// Rows of tables that quote no record although they have decimals, in sections that don't say why with
/// `<!-- no record: REASON -->`; each with its line's number in front.
pub(super) fn unquoted(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut in_code, mut excused) = (false, false);
    // Those of the section so far.
    let (mut rows, mut complaints) = (Vec::new(), Vec::new());
    for (number, line) in lines.iter().enumerate() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code {
            continue;
        }
        if line.starts_with('#') {
            complaints.extend(rows.drain(..).filter(|_| !excused));
            excused = false;
        }
        let reason = line.trim().strip_prefix("<!-- no record:").and_then(|rest| rest.strip_suffix("-->"));
        excused |= reason.is_some_and(|reason| !reason.trim().is_empty());
        let heads_columns = lines.get(number + 1).is_some_and(|next| next.starts_with("|--"));
        if line.starts_with('|') && !heads_columns && has_decimals(line) && Quotation::first(line).is_none() {
            rows.push(format!(
                "{}: a table's row with figures that quote no record: link them, or say why in its section with \
                 <!-- no record: REASON -->",
                number + 1
            ));
        }
    }
    complaints.extend(rows.into_iter().filter(|_| !excused));
    complaints
}

/// Whether there is a point between digits.
fn has_decimals(line: &str) -> bool {
    line.as_bytes()
        .windows(3)
        .any(|bytes| bytes[0].is_ascii_digit() && bytes[1] == b'.' && bytes[2].is_ascii_digit())
}

/// The value at a path of names and numbers with `/` between. In a list of lists a word chooses the one that begins
/// with it, or words with commas between the one that begins with these; in a row of a table the column's name chooses a cell.
fn find<'a>(record: &'a Value, path: &str) -> anyhow::Result<&'a Value> {
    let mut at = record;
    let columns = |name: &str| {
        let columns = record.get("columns")?.as_array()?;
        columns.iter().position(|column| column.get("name").and_then(Value::as_str) == Some(name))
    };
    for word in path.split('/') {
        let word = word.replace("%20", " ");
        let next = match at {
            Value::Object(fields) => fields.get(&word),
            Value::Array(cells) => {
                let is = |cell: Option<&Value>, word: &str| match cell {
                    Some(Value::String(text)) => text == word,
                    Some(Value::Number(number)) => number.is_u64() && number.to_string() == word,
                    _ => false,
                };
                let begins = |row: &&Value| {
                    is(row.get(0), &word)
                        || word.contains(',')
                            && word.split(',').enumerate().all(|(column, word)| is(row.get(column), word))
                };
                cells
                    .iter()
                    .find(begins)
                    .or_else(|| cells.get(columns(&word)?))
                    .or_else(|| cells.get(word.parse::<usize>().ok()?))
            }
            _ => None,
        };
        at = next.ok_or_else(|| anyhow::anyhow!("the record has no '{word}' of '{path}'"))?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn checked(text: &str) -> Checked {
        check(text, |file| {
            anyhow::ensure!(file == "a/b.json" || file == "a/old.json", "there is no {file}");
            let record = json!({
                "ratio": 2.136, "peer_name": "rte_fib", "routes": 901_899, "per_second": 62_345_678.0,
                "ours": {"median": 41.66, "min": 41.2, "max": 1043.04},
                "columns": [{"name": "way"}, {"name": "cost one"}],
                "rows": [["scalar", 3.25], ["SIMD", 2.5], [64, 7.0], [4096, "mix", 8.5], [4096, "64", 9.5]]
            });
            Ok(Quoted { record, older: file == "a/old.json" })
        })
    }

    fn complaint(text: &str) -> String {
        let checked = checked(text);
        assert_eq!(checked.complaints.len(), 1, "{checked:?}");
        checked.complaints[0].clone()
    }

    #[test]
    fn right_figures_pass_at_the_precision_shown() {
        let text = "| [2.14](a/b.json#ratio) times | [2](a/b.json#ratio) | [rte_fib](a/b.json#peer_name)\n\
                    [41.7 (41.2 – 1,043.0)](a/b.json#ours), [901,899](a/b.json#routes), [link](a.md#x) [x](b.json) `[9](a/b.json#ratio)`\n\
                    [62.3](a/b.json#per_second*1e-6) M [2.50](a/b.json#rows/SIMD/cost%20one) [7.0](a/b.json#rows/64/1)\n\
                    [8.5](a/b.json#rows/4096,mix/2) [9.5](a/b.json#rows/4096,64/2)\n\
                    ```\n[9](a/b.json#ratio)\n```\n";
        let checked = checked(text);
        assert_eq!(checked, Checked { quoted: 10, refilled: text.to_owned(), ..Checked::default() });
    }

    #[test]
    fn wrong_figures_are_told_and_refilled() {
        let checked = checked("x\n**[2.20](a/b.json#ratio)** [1.0 (2.0 – 3.0)](a/b.json#ours).\n");
        assert_eq!(
            checked.differing,
            [
                "2: '2.20' is quoted, the record says '2.14' (a/b.json#ratio)",
                "2: '1.0 (2.0 – 3.0)' is quoted, the record says '41.7 (41.2 – 1043.0)' (a/b.json#ours)"
            ]
        );
        assert_eq!(
            checked.refilled,
            "x\n**[2.14](a/b.json#ratio)** [41.7 (41.2 – 1043.0)](a/b.json#ours).\n"
        );
    }

    #[test]
    fn figures_of_older_code_are_marked_once_a_line() {
        let bare = "| [2.14](a/old.json#ratio) | [901,899](a/old.json#routes) | [2](a/b.json#ratio) |\n\n† Older code.\n";
        let marked = bare.replace("routes)", "routes)†");
        let found = checked(bare);
        assert!(found.differing[0].starts_with("1: a figure of older code is not marked"), "{found:?}");
        assert_eq!((found.differing.len(), &found.refilled), (1, &marked));
        assert_eq!((checked(&marked).differing.len(), checked(&marked).complaints.len()), (0, 0));
        // A mark that has become wrong goes.
        let wrong = "[2](a/b.json#ratio)† as before";
        assert_eq!(checked(wrong).refilled, "[2](a/b.json#ratio) as before");
        assert!(complaint("[2](a/old.json#ratio)†").contains("says what that means"));
    }

    #[test]
    fn quotations_of_nothing_are_told() {
        assert!(complaint("[1](c.json#ratio)").starts_with("1: there is no c.json"));
        assert!(complaint("[1](a/b.json#ration)").contains("the record has no 'ration'"));
        assert!(complaint("[1](a/b.json#rows/NEON/1)").contains("the record has no 'NEON'"));
        assert!(complaint("[1](a/b.json#rows/4096,whole/1)").contains("the record has no '4096,whole'"));
        assert!(complaint("[1 2](a/b.json#ratio)").contains("more figures"));
        assert!(complaint("[1](a/b.json#ours)").contains("fewer figures"));
        assert!(complaint("[1](a/b.json#rows)").contains("no figure"));
        assert!(complaint("[1](a/b.json#ratio*x)").contains("factor"));
    }

    #[test]
    fn figures_in_tables_come_from_records() {
        let table = "# A\n| what | 22.11 |\n|---|---|\n| [2.14](a/b.json#ratio) | 1.5 |\n| plain | 12 |\n| bare | 1.5 |\n";
        let complaints = unquoted(table);
        assert!(matches!(&complaints[..], [one] if one.starts_with("6: a table's row")), "{complaints:?}");
        assert_eq!(
            unquoted(&format!("{table}\n<!-- no record: an old machine -->\n# B\n")),
            Vec::<String>::new()
        );
        // Another section's reason, or none, is no excuse.
        assert_eq!(unquoted(&format!("<!-- no record: an old machine -->\n{table}")).len(), 1);
        assert_eq!(unquoted(&format!("{table}<!-- no record: -->\n")).len(), 1);
        assert_eq!(unquoted(&format!("```\n{table}```\n")), Vec::<String>::new());
    }
}

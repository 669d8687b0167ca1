//! The page for a browser: files that are part of the program, so that it works without a network.

/// A file as it is served.
pub(crate) struct File {
    /// Where it is.
    pub(crate) path: &'static str,
    /// What it is.
    pub(crate) media_type: &'static str,
    /// What is in it.
    pub(crate) text: &'static str,
}

/// A script.
const fn script(path: &'static str, text: &'static str) -> File {
    File { path, media_type: "text/javascript; charset=utf-8", text }
}

/// All of them. They name each other, and nothing else.
pub(crate) const FILES: [File; 12] = [
    File { path: "/", media_type: "text/html; charset=utf-8", text: include_str!("../page/page.html") },
    File { path: "/page.css", media_type: "text/css; charset=utf-8", text: include_str!("../page/page.css") },
    script("/chart.js", include_str!("../page/chart.js")),
    script("/element.js", include_str!("../page/element.js")),
    script("/flame.js", include_str!("../page/flame.js")),
    script("/heat.js", include_str!("../page/heat.js")),
    script("/graph.js", include_str!("../page/graph.js")),
    script("/page.js", include_str!("../page/page.js")),
    script("/rates.js", include_str!("../page/rates.js")),
    script("/sections.js", include_str!("../page/sections.js")),
    script("/table.js", include_str!("../page/table.js")),
    script("/text.js", include_str!("../page/text.js")),
];

/// The file at a path, if there is one.
pub(crate) fn file(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_files_name_is_there() {
        let mut named = 0;
        for File { path, text, .. } in &FILES {
            for before in ["from \"./", "src=\"", "href=\""] {
                for rest in text.split(before).skip(1) {
                    let name = rest.split('"').next().unwrap_or_default();
                    // Sections of the page itself, and what isn't a file.
                    if name.starts_with('#')
                        || ["data:,", "stats.json", "graph.json", "layout.json", "metrics"].contains(&name)
                    {
                        continue;
                    }
                    assert!(file(&format!("/{name}")).is_some(), "{path} names {name}");
                    named += 1;
                }
            }
        }
        assert!(named >= FILES.len() - 1, "each but the page is named: {named}");
    }
}

//! Programs of other people that say what is right, in Python.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::requirements;

/// What a script answers on standard output to a question on standard input, which it reads to the end first. `None` if its Python (that of
/// the environment variable `WARMLANE_ORACLE_PYTHON`, if there is one) hasn't got the module that it needs, which
/// [`requirements`] says loudly.
///
/// # Panics
/// If the script fails; what it says on standard error stands above then.
#[track_caller]
pub fn ask(module: &str, script: &str, question: &[u8]) -> Option<Vec<u8>> {
    let python = std::env::var("WARMLANE_ORACLE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    if !requirements::python_module(&python, module) {
        return None;
    }
    let command = &mut Command::new(python);
    let mut process = command
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python starts, as it has just done");
    // A script that ends early breaks the pipe; why, its own words say.
    let asked = process.stdin.take().expect("it is a pipe").write_all(question);
    let output = process.wait_with_output().expect("it can be waited for");
    assert!(output.status.success(), "what Python said stands above");
    asked.expect("it has read everything");
    Some(output.stdout)
}

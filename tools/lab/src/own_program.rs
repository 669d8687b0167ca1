//! The command that experiments are part of, for those that start it again.

use crate::error::LabError;
use std::path::PathBuf;

/// Its file, for an experiment that needs routers, generators or forwarders.
pub(crate) fn own_program(experiment: &str) -> Result<PathBuf, LabError> {
    let program = std::env::current_exe().map_err(LabError::setup)?;
    if program.file_stem().is_some_and(|name| name == "warmlane") {
        Ok(program)
    } else {
        Err(LabError::setup(format!(
            "it starts commands of Warmlane: do it by the command `warmlane lab {experiment}`"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_is_told_to_use_the_command() {
        let error = own_program("interrupt").unwrap_err().to_string();
        assert!(error.contains("warmlane lab interrupt"), "{error}");
    }
}

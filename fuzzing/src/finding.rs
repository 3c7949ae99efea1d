//! What a campaign reports.

use std::fmt;

use crate::generate::Case;

/// Engines that do not agree.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The case, with one input.
    pub case: Case,
    /// Those who are alone with what they say.
    pub suspects: Vec<String>,
    /// Those who agree.
    pub majority: Vec<String>,
    /// The differences of the first dissenting engine.
    pub difference: String,
    /// What an engine says of its own mistake, if it made one before anything ran.
    pub failed: Option<String>,
    /// The first instruction by which it differs, once the case is small.
    pub insn: Option<String>,
    /// Number of the known difference that it is.
    pub known: Option<&'static str>,
}

/// As a file of the corpus has it.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {} against {}", self.suspects.join(", "), self.majority.join(", "))?;
        if let Some(why) = &self.failed {
            writeln!(f, "# {}", why.replace('\n', " "))?;
        }
        if let Some(insn) = &self.insn {
            writeln!(f, "# first difference: {insn}")?;
        }
        if let Some(known) = self.known {
            writeln!(f, "# known: {known}")?;
        }
        self.difference.lines().try_for_each(|line| writeln!(f, "# {line}"))?;
        self.case.fmt(f)
    }
}

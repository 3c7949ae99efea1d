//! The directory of a campaign: findings, a file each, and where to continue.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use twinbpf_fuzzing::generate::Case;

/// See the module documentation.
pub(super) struct Corpus {
    folder: PathBuf,
}

/// What a campaign continues with.
pub(super) struct State {
    pub(super) seed: u64,
    /// The first batch that is not done.
    pub(super) next: u64,
}

const STATE: &str = "state.json";

/// Stands between the cases of a batch.
const NEXT: &str = "\n---\n";

/// Cases as a file has them.
pub(super) fn text(cases: &[Case]) -> String {
    cases.iter().map(|case| case.to_string().trim_end().to_owned()).collect::<Vec<String>>().join(NEXT) + "\n"
}

/// The cases in the text of a file.
pub(crate) fn cases(text: &str) -> Result<Vec<Case>> {
    let cases: Vec<&str> = text.split(NEXT).collect();
    if let [case] = cases[..] {
        return Ok(vec![case.parse()?]);
    }
    let cases = cases.into_iter().enumerate();
    cases.map(|(index, text)| text.parse().with_context(|| format!("case {}", index + 1))).collect()
}

impl Corpus {
    pub(super) fn open(folder: &Path) -> Result<Corpus> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Corpus { folder: folder.to_owned() })
    }

    /// Where an earlier campaign ended, if there was one with this seed.
    pub(super) fn state(&self, seed: Option<u64>) -> Option<State> {
        let text = fs::read_to_string(self.folder.join(STATE)).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        let state = State { seed: value["seed"].as_u64()?, next: value["next"].as_u64()? };
        seed.is_none_or(|seed| seed == state.seed).then_some(state)
    }

    pub(super) fn save(&self, state: &State) -> Result<()> {
        let path = self.folder.join(STATE);
        let text = json!({ "seed": state.seed, "next": state.next }).to_string();
        // Whole or not at all.
        let fresh = path.with_extension("new");
        fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &path)).with_context(|| path.display().to_string())
    }

    /// Writes a case, after a line with the command that repeats it. The same bucket has the same name.
    pub(super) fn write(&self, bucket: &str, text: &str, engines: &[String]) -> Result<PathBuf> {
        let mut hasher = DefaultHasher::new();
        bucket.hash(&mut hasher);
        let path = self.folder.join(format!("{:08x}.case", hasher.finish() as u32));
        let quoted = engines.iter().map(|arg| if arg.contains(' ') { format!("'{arg}'") } else { arg.clone() });
        let command = quoted.collect::<Vec<_>>().join(" ");
        let text = format!("# twinbpf diff {} {command}\n{text}", path.display());
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

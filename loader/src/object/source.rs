//! The text of source lines that the compiler could not quote: it reads files again for that, and some come through a pipe.

use std::collections::HashMap;
use std::sync::Arc;

use twinbpf_btf::{Btf, LineInfo};

use super::Object;

impl Object {
    /// Gives the lines of a source their text, where the records of `.BTF.ext` have none, as those of a source that clang
    /// read from a pipe. `file` is its name in `#line`, without a `/`. Records lose the folder of clang before it.
    pub fn set_source(&mut self, file: &str, text: &str) {
        let Some(btf) = &self.btf else { return };
        let is_of_file = |record: &LineInfo| {
            let path = btf.str(record.file_off);
            path.rsplit('/').next() == Some(file) && btf.str(record.text_off).is_empty()
        };
        let lines: Vec<&str> = text.lines().collect();
        let (mut edit, mut records, mut known) = (btf.edit(), self.records.clone(), HashMap::new());
        let file_off = edit.add_str(file);
        for record in records.all_lines().filter(|record| is_of_file(record)) {
            let line = (record.line as usize).checked_sub(1).and_then(|index| lines.get(index));
            record.file_off = file_off;
            record.text_off = *known.entry(record.line).or_insert_with(|| line.map_or(0, |line| edit.add_str(line)));
        }
        // Lines stay without a text where strings would be too many for the format.
        if let Ok(edited) = Btf::parse(&edit.to_bytes(), self.endian) {
            (self.btf, self.records) = (Some(Arc::new(edited)), records);
        }
    }
}

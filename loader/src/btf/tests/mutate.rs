//! Thousands of damaged copies of real BTF: everything must end in a value or an error, soon.

use super::real::sections;
use crate::btf::{Btf, BtfExt, Endian, Layouts, LineResolver, TypeId, encode_value, format_value, locate, map_specs};

/// xorshift64*; the same damage in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit.max(1)
    }

    /// Some bytes changed, a word made extreme, a piece cut or doubled.
    fn damage(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(8) {
                0 => bytes.truncate(at),
                1 => drop(bytes.drain(at..(at + 4 * self.below(8)).min(bytes.len()))),
                2 => {
                    let piece = bytes[at..(at + 4 * self.below(16)).min(bytes.len())].to_vec();
                    bytes.splice(at..at, piece);
                }
                3 => {
                    let at = at & !3;
                    let word = [0, u32::MAX, 0x7fff_ffff, 1, 0xffff, 1 << 24][self.below(6)];
                    if let Some(target) = bytes.get_mut(at..at + 4) {
                        target.copy_from_slice(&word.to_le_bytes());
                    }
                }
                4 => {
                    // A small id or size, where it is likeliest to mean something.
                    let at = at & !3;
                    let word = self.below(130) as u32;
                    if let Some(target) = bytes.get_mut(at..at + 4) {
                        target.copy_from_slice(&word.to_le_bytes());
                    }
                }
                _ => {
                    let bit = 1 << self.below(8);
                    if let Some(target) = bytes.get_mut(at) {
                        *target ^= bit;
                    }
                }
            }
        }
        bytes
    }
}

/// Runs every query on all types; returns the amount of output.
fn use_all(btf: &Btf, ext: &[u8], endian: Endian) -> usize {
    let mut total = 0;
    let mut layouts = Layouts::new(btf);
    let data = [0x41; 256];
    for id in btf.ids().chain([TypeId(0), TypeId(u32::MAX)]) {
        let size = btf.size_of(id).map_or(0, |size| size as usize);
        let mut out = vec![0; size.min(256)];
        total += btf.type_name(id).len() + layouts.fields(id).len();
        total += format_value(btf, id, &data, endian).len().min(100);
        total += usize::from(encode_value(btf, id, "1", &mut out, endian).is_ok());
        total += usize::from(locate(btf, id, ".text[0]").is_ok());
        total += usize::from(btf.signature(id).is_some());
    }
    for (_, section) in btf.datasecs() {
        total += section.vars().map(|var| var.name.len()).sum::<usize>();
    }
    total += btf.to_c(None).map_or(0, |text| text.len().min(100));
    total += map_specs(btf).len() + btf.ids_by_name("text").count();
    if let Ok(ext) = BtfExt::parse(btf, ext) {
        let mut resolver = LineResolver::new(btf);
        let lines = ext.sections.iter().flat_map(|section| &section.lines);
        total += lines.map(|info| resolver.line(info, 0).text.len()).sum::<usize>();
    }
    total
}

#[test]
fn damaged_btf_never_panics() {
    let mut random = Random(0x5eed);
    let mut parsed = 0;
    for path in ["scripts/sorted.bpf.o", "scripts/hello.bpf.o", "bench/sha256.bpf.o"] {
        let (bytes, ext, endian) = sections(path);
        assert!(use_all(&Btf::parse(&bytes, endian).unwrap(), &ext, endian) > 500);
        for round in 0..1500 {
            if let Ok(btf) = Btf::parse(&random.damage(&bytes), endian) {
                parsed += 1;
                if round % 4 == 0 {
                    use_all(&btf, &ext, endian);
                }
            }
        }
        let btf = Btf::parse(&bytes, endian).unwrap();
        for _ in 0..1500 {
            let ext = random.damage(&ext);
            if let Ok(ext) = BtfExt::parse(&btf, &ext) {
                let mut resolver = LineResolver::new(&btf);
                for info in ext.sections.iter().flat_map(|section| &section.lines) {
                    resolver.line(info, 0);
                }
            }
        }
        for len in (0..bytes.len()).step_by(3) {
            assert!(Btf::parse(&bytes[..len], endian).is_err(), "{path} cut to {len} bytes");
        }
    }
    assert!(parsed > 500, "only {parsed} damaged copies still parsed");
}

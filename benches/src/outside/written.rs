//! Workloads that are written from public specifications: `corpus/outside`.

use std::path::PathBuf;

use twinbpf::Object;

use super::inputs::{self, WHOLE};
use crate::workload::corpus;
#[cfg(test)]
use crate::workload::{BLOCK, INPUT};

/// One of them.
pub(super) struct Written {
    /// File name in `corpus/outside`, without extension.
    pub(super) name: &'static str,
    /// Work of one run, in its own unit, or [`WHOLE`].
    len: u64,
    shape: fn(&mut [u8]),
    /// What native code returns.
    pub(super) expected: u64,
}

impl Written {
    /// The block of each run.
    pub(super) fn block(&self) -> Vec<u8> {
        inputs::block(self.len, self.shape)
    }

    /// The C source.
    pub(super) fn source(&self) -> PathBuf {
        corpus().join(format!("outside/{}.bpf.c", self.name))
    }

    /// The object beside it.
    pub(super) fn object(&self) -> Result<Object, String> {
        let path = corpus().join(format!("outside/{}.bpf.o", self.name));
        let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Object::open(&path.to_string_lossy(), &bytes).map_err(|error| error.to_string())
    }
}

const fn written(name: &'static str, len: u64, shape: fn(&mut [u8]), expected: u64) -> Written {
    Written { name, len, shape, expected }
}

/// All, by what they do.
pub(super) const WRITTEN: &[Written] = &[
    written("adler32", 32768, inputs::noise, 0x62d9_bcb8),
    written("crc32", 16384, inputs::noise, 0x4cea_382f),
    written("xxhash64", 65536, inputs::noise, 0x9047_dc92_110a_e605),
    written("murmur3", 16384, inputs::noise, 0xd1a5_2bfd_f725_abc5),
    written("md5", 16384, inputs::noise, 0x2566_99a7_327c_19c5),
    written("sha1", 16384, inputs::noise, 0x23b1_525c_bbfb_e501),
    written("sha512", 16384, inputs::noise, 0x1a42_4d0d_d463_0ac0),
    written("blake2s", 16384, inputs::noise, 0x776d_9cb4_e202_631d),
    written("aes128", 4096, inputs::noise, 0x10e8_9f15_7609_c68e),
    written("poly1305", 16384, inputs::noise, 0x418f_eb49_7837_1046),
    written("x25519", 64, inputs::noise, 0x675d_b61e_549b_316d),
    written("modexp", 8, inputs::noise, 0x99a5_f45f_cd5e_bc54),
    written("bigmul", 300, inputs::noise, 0x132_0000_09a2),
    written("quicksort", 2048, inputs::noise, 0xa7e4_9396_7290_514f),
    written("mergesort", 2048, inputs::noise, 0x3d42_5d50_10f7_2430),
    written("radixsort", 2048, inputs::noise, 0xa7e4_9396_7290_514f),
    written("inflate", WHOLE, inputs::deflated, 0xb5d0_cce2_3c28_9704),
    written("lzss", 8192, inputs::text, 0x110d_ec36_a2c9_2bfd),
    written("huffman", 8192, inputs::text, 0x5e01_cf33_14de_db06),
    written("base64", 12288, inputs::noise, 0x6718_91dd_8535_d612),
    written("qoi", 4096, inputs::pixels, 0x35cf_85e1_560b_7e74),
    written("adpcm", 8192, inputs::noise, 0xaa32_649f_841c_281d),
    written("dct8x8", 64, inputs::noise, 0xcf4d_b740_46fd_4d48),
    written("regexback", 4096, inputs::text, 0xaf6_444f_aa2c_5f0b),
    written("regexnfa", 2048, inputs::text, 0x6a_001f_000c_0009),
    written("csv", 16384, inputs::csv, 0x4d9a_d3a4_fd67_669f),
    written("http", WHOLE, inputs::http, 0xeb3d_618d_2b04_58e6),
    written("dns", 256, inputs::dns, 0x58e7_4b01_d34a_19f3),
    written("shunting", WHOLE, inputs::formulas, 0x685e_43ec_dd40_5f8b),
    written("brainfuck", 1 << 30, inputs::brainfuck, 0xd1e2_bd54_80e7_ec71),
    written("rbtree", 2000, inputs::noise, 0x2fff_3876_4353_ebbb),
    written("skiplist", 1000, inputs::noise, 0x5c1_630c_f778_3db6),
    written("lpmtrie", 500, inputs::noise, 0x6244_be1d_954b_6977),
    written("bloom", 4000, inputs::noise, 0xc_0000_3790),
    written("cuckoo", 1500, inputs::noise, 0x7e4f_e6a2_b9b6_1a32),
    written("levenshtein", 200, inputs::words, 0x8d67_5139_5271_b20a),
    written("life", 8, inputs::noise, 0x9b00_c2c8_ddbd_3362),
    written("nqueens", 7, inputs::noise, 0x28),
    written("mandelbrot", 48, inputs::noise, 0x33c5_7418_7e83_6f62),
    written("dijkstra", 48, inputs::noise, 0x1b4_0000_0900),
    written("maglev", 100, inputs::noise, 0xe133_9e6e_c12c_00aa),
    written("firewall", 512, inputs::frames, 0xd59f_9ed6_85f0_21fa),
    written("sobel", 96, inputs::noise, 0xf9f6_a459_ba98_59a1),
    written("fir", 8192, inputs::noise, 0x74f5_05d3_efa0_642f),
];

/// What a specification says of an input.
#[cfg(test)]
pub(super) struct Vector {
    pub(super) name: &'static str,
    len: u64,
    pub(super) input: &'static [u8],
    pub(super) result: u64,
}

#[cfg(test)]
impl Vector {
    const fn new(name: &'static str, input: &'static [u8], result: u64) -> Vector {
        Vector { name, len: input.len() as u64, input, result }
    }

    const fn counted(name: &'static str, len: u64, input: &'static [u8], result: u64) -> Vector {
        Vector { name, len, input, result }
    }

    pub(super) fn block(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        block[..8].copy_from_slice(&self.len.to_le_bytes());
        block[INPUT..INPUT + self.input.len()].copy_from_slice(self.input);
        block
    }
}

/// FNV-1a, as results that are long are folded.
#[cfg(test)]
const fn digest(bytes: &[u8]) -> u64 {
    crate::sets::fnv1a(bytes)
}

/// From RFC 1950, the CRC catalogue, XXH64, RFC 1321, FIPS 180-4, RFC 7693, FIPS 197, RFC 8439, RFC 7748, RFC 4648, RFC 1951;
/// numbers of queens and distances of words that textbooks have.
#[cfg(test)]
pub(super) const VECTORS: &[Vector] = &[
    Vector::new("adler32", b"Wikipedia", 0x11e6_0398),
    Vector::new("crc32", b"123456789", 0xcbf4_3926),
    Vector::new("xxhash64", b"", 0xef46_db37_51d8_e999),
    Vector::new("xxhash64", b"abc", 0x44bc_2cf5_ad77_0999),
    Vector::new("murmur3", b"hello", 0x248b_fa47),
    Vector::new("md5", b"abc", 0x9001_5098_3cd2_4fb0),
    Vector::new("sha1", b"abc", 0xa999_3e36_4706_816a),
    Vector::new("sha512", b"abc", 0xddaf_35a1_9361_7aba),
    Vector::new("blake2s", b"abc", 0x508c_5e8c_327c_14e2),
    Vector::new(
        "aes128",
        b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\
          \x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff",
        0x69c4_e0d8_6a7b_0430,
    ),
    Vector::new(
        "poly1305",
        b"\x85\xd6\xbe\x78\x57\x55\x6d\x33\x7f\x44\x52\xfe\x42\xd5\x06\xa8\
          \x01\x03\x80\x8a\xfb\x0d\xb2\xfd\x4a\xbf\xf6\xaf\x41\x49\xf5\x1b\
          Cryptographic Forum Research Group",
        0xa806_1dc1_3051_36c6,
    ),
    Vector::new(
        "x25519",
        b"\xa5\x46\xe3\x6b\xf0\x52\x7c\x9d\x3b\x16\x15\x4b\x82\x46\x5e\xdd\
          \x62\x14\x4c\x0a\xc1\xfc\x5a\x18\x50\x6a\x22\x44\xba\x44\x9a\xc4\
          \xe6\xdb\x68\x67\x58\x30\x30\xdb\x35\x94\xc1\xa4\x24\xb1\x5f\x7c\
          \x72\x66\x24\xec\x26\xb3\x35\x3b\x10\xa9\x03\xa6\xd0\xab\x1c\x4c",
        0xc3da_5537_9de9_c690,
    ),
    // 100! has 158 digits, which begin with 93326 and add up to 648.
    Vector::counted("bigmul", 100, b"", 93_326 << 32 | 648),
    Vector::new("base64", b"foobar", digest(b"Zm9vYmFy")),
    Vector::new("base64", b"foob", digest(b"Zm9vYg==")),
    // A stored block, and one with fixed codes.
    Vector::new("inflate", b"\x01\x03\x00\xfc\xffabc", digest(b"abc")),
    Vector::new("inflate", b"\x4b\x4c\x4a\x06\x00", digest(b"abc")),
    Vector::counted("levenshtein", 2, b"kitten\0sitting\0", 3),
    Vector::counted("levenshtein", 2, b"saturday\0sunday\0", 3),
    Vector::counted("nqueens", 6, b"", 4),
    Vector::counted("nqueens", 8, b"", 92),
    Vector::new("shunting", b"-(4-10)*2+7%4\n", 15),
    Vector::counted("brainfuck", 10_000, b"++++++++[>+++++++++<-]>.>++++++++++[>++++++++++<-]>+++++.", digest(b"Hi")),
];

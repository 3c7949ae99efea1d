//! The workloads of `corpus/outside` return what their C returns as native code, and what specifications say, in every mode.
#![expect(unsafe_code, reason = "programs of the corpus are trusted")]

#[path = "../../benches/src/outside/inputs.rs"]
mod inputs;
#[path = "../../benches/src/workload/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the benches use the rest")]
#[allow(missing_docs, unreachable_pub, reason = "a module of another package")]
mod workload;
#[path = "../../benches/src/outside/written.rs"]
#[allow(dead_code, reason = "the benches use the rest")]
mod written;

use twinbpf::{Config, Engine, EngineKind, Isolation, Linker, Object, OptLevel};
use workload::{BLOCK, INPUT, fnv1a};
use written::WRITTEN;

/// Bytes of a frame, as much as any of them needs.
const FRAME: u32 = 4096;

/// What a specification says of an input.
struct Vector {
    name: &'static str,
    len: u64,
    input: &'static [u8],
    result: u64,
}

impl Vector {
    const fn new(name: &'static str, input: &'static [u8], result: u64) -> Vector {
        Vector { name, len: input.len() as u64, input, result }
    }

    const fn counted(name: &'static str, len: u64, input: &'static [u8], result: u64) -> Vector {
        Vector { name, len, input, result }
    }

    fn block(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        block[..8].copy_from_slice(&self.len.to_le_bytes());
        block[INPUT..INPUT + self.input.len()].copy_from_slice(self.input);
        block
    }
}

/// From RFC 1950, the CRC catalogue, XXH64, RFC 1321, FIPS 180-4, RFC 7693, FIPS 197, RFC 8439, RFC 7748, RFC 4648, RFC 1951,
/// FIPS 202, ISO/IEC 18004; numbers of queens, distances of words and transforms that textbooks have.
const VECTORS: &[Vector] = &[
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
    Vector::new("base64", b"foobar", fnv1a(b"Zm9vYmFy")),
    Vector::new("base64", b"foob", fnv1a(b"Zm9vYg==")),
    // A stored block, and one with fixed codes.
    Vector::new("inflate", b"\x01\x03\x00\xfc\xffabc", fnv1a(b"abc")),
    Vector::new("inflate", b"\x4b\x4c\x4a\x06\x00", fnv1a(b"abc")),
    Vector::counted("levenshtein", 2, b"kitten\0sitting\0", 3),
    Vector::counted("levenshtein", 2, b"saturday\0sunday\0", 3),
    Vector::counted("nqueens", 6, b"", 4),
    Vector::counted("nqueens", 8, b"", 92),
    Vector::new("shunting", b"-(4-10)*2+7%4\n", 15),
    Vector::new("sha3", b"", 0xa7ff_c6f8_bf1e_d766),
    Vector::new("sha3", b"abc", 0x3a98_5da7_4fe2_25b2),
    // The row without a byte has a zero, and is the fifth.
    Vector::new("bwt", b"banana", fnv1a(b"annb\0aa") ^ 4),
    // The check bytes of the QR code 1-M of "HELLO WORLD".
    Vector::counted(
        "reedsolomon",
        1,
        b"\x0a\x10\x20\x5b\x0b\x78\xd1\x72\xdc\x4d\x43\x40\xec\x11\xec\x11\xec\x11",
        fnv1a(&[196, 35, 39, 119, 235, 215, 231, 226, 93, 23]),
    ),
    // "she" and "he" at 3, "hers" at 5.
    Vector::new(
        "ahocorasick",
        b"he\0she\0his\0hers\0\0ushers",
        (((3 << 16 | 2) * 31 + (3 << 16 | 1)) * 31 + (5 << 16 | 4)) * 31 + 3,
    ),
    Vector::new("forth", b": answer 6 7 * . ; answer", 42),
    Vector::new(
        "forth",
        b": all 6 3 and 8 or 1 xor . 1 2 3 rot . . . begin 1 until 5 5 = . 0 0= . ; all",
        ((((11 * 31 + 1) * 31 + 3) * 31 + 2) * 31 + 0xffff_ffff) * 31 + 0xffff_ffff,
    ),
    Vector::counted("logformat", 1, b"", fnv1a(b"1970-01-01 00:00:00 kernel   pid=0 status=0 bytes=0\n")),
    Vector::counted("brainfuck", 10_000, b"++++++++[>+++++++++<-]>.>++++++++++[>++++++++++<-]>+++++.", fnv1a(b"Hi")),
];

fn jit() -> Config {
    Config::new().engine(EngineKind::Jit).frame_size(FRAME)
}

/// What two runs of a program over a block return.
fn results(object: &Object, engine: &Engine, block: &[u8]) -> [u64; 2] {
    let pre = Linker::<()>::new(engine).instantiate_pre(object).unwrap_or_else(|error| panic!("{error:#}"));
    let entry = pre.program("prog").unwrap();
    let mut instance = pre.instance(()).unwrap();
    let block = instance.context(block).unwrap();
    [(); 2].map(|()| instance.call(entry, &[block.addr()]).unwrap())
}

#[test]
fn every_workload_returns_what_native_code_does() {
    let sandboxed = [
        ("interp", Config::new().engine(EngineKind::Interp).frame_size(FRAME)),
        ("sandbox", jit()),
        ("fuel", jit().max_insns(1 << 40)),
        ("strict", jit().isolation(Isolation::Strict)),
        ("none", jit().opt_level(OptLevel::None)),
    ];
    let trusted = [("trusted", jit()), ("trusted, none", jit().opt_level(OptLevel::None))];
    let sandboxed = sandboxed.map(|(name, config)| (name, Engine::new(config).unwrap()));
    // SAFETY: the programs are those of the corpus, which access their own memory.
    let trusted =
        trusted.map(|(name, config)| (name, unsafe { Engine::new_trusted(config.memory_limit(64 << 20)) }.unwrap()));
    let mut wrong = Vec::new();
    for subject in WRITTEN {
        let (object, block) = (subject.object().unwrap(), subject.block());
        for (mode, engine) in sandboxed.iter().chain(&trusted) {
            let results = results(&object, engine, &block);
            if results != [subject.expected; 2] {
                wrong.push(format!("{} {mode}: {results:#x?} instead of {:#x}", subject.name, subject.expected));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn workloads_return_what_specifications_say() {
    let engine = Engine::new(jit()).unwrap();
    for vector in VECTORS {
        let subject = WRITTEN.iter().find(|it| it.name == vector.name).unwrap();
        let results = results(&subject.object().unwrap(), &engine, &vector.block());
        assert_eq!(results, [vector.result; 2], "{} of {:?}", vector.name, vector.input);
    }
}

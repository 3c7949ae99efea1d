//! Definitions against programs of gcc: which points they have, the places of their arguments in perf's notation, and the
//! exact words where there is none.

#[path = "../../tests/support/harness.rs"]
mod harness;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection};
use support::{parse, read};
use twinbpf_probe::{Binary, Point, Store};

harness::tests! {
    places_are_in_perfs_notation,
    members_behind_implicit_pointers_are_there,
    without_optimisation_points_are_after_the_prologue,
    parameters_that_are_assigned_first_are_not_taken_for_another,
    parameters_that_llvm_promotes_are_refused,
    code_of_two_sources_is_refused,
    errors_name_what_is_there,
    a_file_without_debug_information_says_what_would_give_it,
    a_stripped_file_is_probed_by_address,
    addresses_are_those_of_functions_and_copies,
    a_line_of_several_files_is_ambiguous,
}

const SOURCE: &str = r#"
struct inner { short x; };
struct page { short a; unsigned flags : 3; int mode : 5; unsigned char c; const char *name; int arr[4]; struct page *next;
    union { long u; char v; }; struct inner in; struct hidden *h; };
struct pair { int x, y; };
__attribute__((noinline)) void use(long v) { __asm__ volatile("" : : "r"(v) : "memory"); }
__attribute__((noinline)) int work1(int n, struct page *pg, long l) { use(l); return n + pg->flags; }
__attribute__((noinline)) int work2(char c, const char *s, unsigned short n, double d) { use((long)s); return n + c + d; }
__attribute__((noinline)) void nothing(void) { use(3); }
extern int also(int n, struct page *pg, long l) __attribute__((alias("work1")));
static inline __attribute__((always_inline)) int inl(struct pair *p, int k) {
    use(p->x * 3 + k);
    return p->y;
}
__attribute__((noinline)) int copies(int a) { struct pair p = { a, a * 2 }; return inl(&p, 7) + inl(&p, a); }
__attribute__((noinline)) struct pair both(int x, int y) { struct pair p = { x, y }; return p; }
int counter = 5;
int main(int argc, char **argv) {
    struct page p = { 1, 2, 3, 4, "x", { 1, 2, 3, 4 } };
    p.next = &p;
    nothing();
    return work1(argc, &p, 5) + work2('a', argv[0], 7, 1.0) + copies(argc) + both(argc, 2).y + counter;
}
"#;

/// Functions that assign to their parameters first.
const ASSIGNED: &str = r#"
__attribute__((noinline)) void use(long v) { __asm__ volatile("" : : "r"(v) : "memory"); }
__attribute__((noinline)) long other(int a, int b, int c) { a = b; use(a + c); return a; }
__attribute__((noinline)) long constant(int a, _Bool b, int c) { a = 5; b = b | 1; use(c); return a + b + c; }
__attribute__((noinline)) long kept(int a, double x, unsigned char b, int c) { use(a + b + c); return a + (long)x; }
static __attribute__((noinline)) long fewer(int a, int b, int c) { use(b + c); return c; }
int main(int n, char **v) { return other(n, n + 5, 7) + constant(n, n, n) + kept(n, n, n, n) + fewer(n, n + 1, n + 2); }
"#;

/// Two programs in one: what `five` and `next` do first, or what callers pass to them.
const TWO: &str = r#"
struct node { int v; long w; struct node *next; };
__attribute__((noinline)) void use(long v) { __asm__ volatile("" : : "r"(v) : "memory"); }
#ifdef ASSIGNS
static __attribute__((noinline)) long five(int a, int c) { a = 5; use(c); return a + c; }
static __attribute__((noinline)) long next(struct node *p, int k) { p = p->next; use(k); return p->v + p->w; }
#define FIVE argc
#define NEXT(p) p
#else
static __attribute__((noinline)) long five(int a, int c) { use(c); return a + c; }
static __attribute__((noinline)) long next(struct node *p, int k) { use(k); return p->v + p->w; }
#define FIVE 5
#define NEXT(p) (p)->next
#endif
volatile long vary;
int main(int argc, char **argv) {
    struct node b = { argc, 2, 0 }, a = { argc, vary, &b };
    b.next = &a;
    return five(FIVE, argc) + five(FIVE, vary) + next(NEXT(&a), argc) + next(NEXT(&b), 2);
}
"#;

/// The program, compiled; `None` where there is no such compiler.
fn compile(folder: &Path, (compiler, source): (&str, &str), options: &[&str]) -> Option<PathBuf> {
    let program = folder.join("t");
    std::fs::write(folder.join("t.c"), source.trim_start()).unwrap();
    let done = Command::new(compiler).args(options).arg("-o").arg(&program).arg("t.c").current_dir(folder).output();
    match done {
        Ok(done) => {
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            Some(program)
        }
        Err(error) => {
            harness::skip(&format!("{compiler}: {error}"));
            None
        }
    }
}

/// What definitions lead to in the program that these options make.
fn with(options: &[&str], check: impl FnOnce(&dyn Fn(&str) -> Vec<String>)) {
    with_source(("gcc", SOURCE), options, check);
}

/// The same for another compiler and source.
fn with_source(made: (&str, &str), options: &[&str], check: impl FnOnce(&dyn Fn(&str) -> Vec<String>)) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), made, options) else { return };
    let bytes = std::fs::read(&program).unwrap();
    let store = Store::new();
    let binary = Binary::open(&store, &program, &bytes, &read, 2).unwrap();
    check(&|text| match parse(text).and_then(|definition| binary.probe(&definition)) {
        Ok(points) => points.iter().map(|point| line(&binary, point)).collect(),
        Err(error) => vec![format!("error: {error}")],
    });
}

fn line(binary: &Binary<'_>, point: &Point) -> String {
    let mut text = point.function.clone();
    if let Some(outer) = &point.inlined_in {
        text.push_str(&format!(" in {outer}"));
    }
    if !point.aliases.is_empty() {
        text.push_str(&format!(" (also {})", point.aliases.join(", ")));
    }
    for (name, value) in &point.args {
        match value {
            Ok(value) => text.push_str(&format!(" {name}={}", value.text(binary.machine(), 0))),
            Err(refusal) => text.push_str(&format!(" {name}: {refusal}")),
        }
    }
    text
}

fn places_are_in_perfs_notation() {
    for dwarf in ["-gdwarf-4", "-gdwarf-5"] {
        with(&["-O2", dwarf], |probe| {
            let work1 = "work1 (also also)";
            assert_eq!(probe("wk=work* n"), [format!("{work1} n=%di:s32"), "work2 n=%dx:x16".to_owned()]);
            assert_eq!(probe("also n"), [format!("{work1} n=%di:s32")]);
            assert_eq!(
                probe("work1 pg->a pg->arr[2] pg->name:string pg->next->name pg->u pg->in.x l:u8"),
                [format!(
                    "{work1} a=+0(%si):s16 arr=+24(%si):s32 name=+0(+8(%si)):string name=+8(+32(%si)):x64 \
                     u=+40(%si):s64 x=+48(%si):s16 l=%dx:u8"
                )]
            );
            // perf 6.1 fails for DWARF 5, and takes other bits for DWARF 4.
            assert_eq!(
                probe("work1 pg->flags pg->mode"),
                [format!("{work1} flags=+0(%si):b3@16/32 mode=+0(%si):b5@19/32")]
            );
            assert_eq!(probe("work1%return $retval"), [format!("{work1} retval=%ax:s32")]);
            assert_eq!(probe("both%return $retval.x $retval.y"), ["both x=%ax:s32 y=(%ax >>u \\32):s32"]);
            assert_eq!(
                probe("main %si %rdi:u32 @counter"),
                ["main si=%si:x64 rdi=%di:u32 counter=@0x404018:s32"
                    .replace("@0x404018", &counter(&probe("main @counter")[0]))]
            );
        });
    }
}

fn counter(text: &str) -> String {
    text.split(['=', ':']).nth(1).unwrap().to_owned()
}

fn members_behind_implicit_pointers_are_there() {
    // perf 6.1 says that the parameter may have been optimised out.
    with(&["-O2", "-g"], |probe| {
        let found = probe("inl p->x k");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("inl in copies x=%") && found[0].ends_with(":s32 k=\\7:s32"), "{found:?}");
        assert!(found[1].starts_with("inl in copies x=%"), "{found:?}");
        let pointer = "p: the pointer itself was optimised away; what it points to can be had (p->...)";
        assert_eq!(probe("inl p"), [format!("inl in copies {pointer}"), format!("inl in copies {pointer}")]);
    });
}

fn without_optimisation_points_are_after_the_prologue() {
    with(&["-O0", "-g"], |probe| {
        assert_eq!(probe("work1 n pg->a"), ["work1 (also also) n=-4(%bp):s32 a=+0(-16(%bp)):s16"]);
        let early = probe("work1+1 n").remove(0);
        assert!(early.starts_with("work1 (also also) n: the prologue stores it after 0x"), "{early}");
    });
}

fn parameters_that_are_assigned_first_are_not_taken_for_another() {
    for level in ["-O1", "-O2"] {
        with_source(("clang-19", ASSIGNED), &["-g", level], |probe| {
            let assigned = "the function assigns to it first, and the debug information has only that value";
            let other = &probe("other a b c")[0];
            assert!(other.contains(assigned) && other.contains("b=%si:s32") && other.contains("c=%dx:s32"), "{other}");
            let constant = &probe("constant a b c")[0];
            assert!(constant.matches(assigned).count() == 2 && constant.contains("c=%dx:s32"), "{constant}");
            let kept = &probe("kept a b c")[0];
            assert!(kept.contains("a=%di:s32") && kept.contains("b=%si:x8") && kept.contains("c=%dx:s32"), "{kept}");
            let fewer = &probe("fewer b c")[0];
            assert!(fewer.contains("b=%di:s32") && fewer.contains("c=%si:s32"), "{fewer}");
        });
    }
}

/// Local functions that assign to their parameters first: LLVM passes members in place of pointers.
const PROMOTED: &str = r#"
struct node { int v; long w; struct node *next; };
__attribute__((noinline)) void use(long v) { __asm__ volatile("" : : "r"(v) : "memory"); }
static __attribute__((noinline)) long next(struct node *p, int k) { p = p->next; use(k); return p->v + p->w; }
static __attribute__((noinline)) long member(struct node *p, long n, long m) { n = p->w; use(n + m); return n * m; }
static __attribute__((noinline)) long five(int a, int c) { a = 5; use(c); return a + c; }
static __attribute__((noinline)) long sum(struct node *p, int k) { use(k); return p->v + p->next->w; }
struct pair { int x, y; };
__attribute__((noinline)) long swap(struct pair p, int k) { int x = p.x; p.x = p.y; p.y = x; use(k); return p.x - 3L * p.y; }
volatile long vary;
int main(int argc, char **argv) {
    swap((struct pair){ argc, (int)vary }, argc);
    struct node b = { argc, 2, 0 }, a = { argc, vary, &b };
    return next(&a, argc) + next(&b, 2) + member(&a, argc, vary) + member(&b, 3, vary + 1) + five(argc, argc) + five(2, vary) + sum(&a, argc) + sum(&b, 3);
}
"#;

fn parameters_that_llvm_promotes_are_refused() {
    let promoted = "next v: the compiler may have changed what callers pass: in place of a pointer there may be what it \
                    points to, and the debug information does not say where. clang does so at -O3 and with -flto: compile with \
                    -grecord-command-line, and it says whether";
    for level in ["-O1", "-O2", "-O3"] {
        with_source(("clang-19", PROMOTED), &["-g", level], |probe| {
            for (definition, argument) in [("next p->v", "v"), ("member n", "n"), ("five a", "a")] {
                let found = probe(definition).remove(0);
                assert!(!found.contains(&format!(" {argument}=")), "{level}: {found}");
            }
            if level == "-O3" {
                assert_eq!(probe("next p->v"), [promoted]);
            }
            let swap = &probe("swap p.x p.y k")[0];
            assert!(!swap.contains(" x=") && !swap.contains(" y=") && swap.ends_with(" k=%si:s32"), "{level}: {swap}");
            let five = "five a: the debug information has the constant 5, and does not say whether all callers pass it or the \
                        function assigns it";
            assert_eq!(probe("five a"), [five]);
            assert!(probe("five c")[0].contains("c=%di:s32"), "{level}: {:?}", probe("five c"));
        });
        with_source(("clang-19", PROMOTED), &["-g", level, "-grecord-command-line"], |probe| {
            let sum = probe("sum p->v");
            assert_eq!(sum == [promoted.replace("next", "sum")], level == "-O3", "{level}: {sum:?}");
            assert!(level == "-O3" || sum[0].contains(" v=+0(%di):s32"), "{level}: {sum:?}");
        });
    }
}

/// What the refusals above have for a reason: LLVM makes the same code and the same debug information of a program in which
/// the value is what callers pass, and of one in which it is not.
fn code_of_two_sources_is_refused() {
    let code = |options: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let bytes = std::fs::read(compile(folder.path(), ("clang-19", TWO), options)?).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        Some(file.section_by_name(".text").unwrap().data().unwrap().to_vec())
    };
    let (Some(one), Some(other)) = (code(&["-g", "-O3", "-DASSIGNS"]), code(&["-g", "-O3"])) else { return };
    assert_eq!(one, other);
    for options in [&["-g", "-O3", "-DASSIGNS"][..], &["-g", "-O3"]] {
        with_source(("clang-19", TWO), options, |probe| {
            assert!(probe("five a")[0].contains("the debug information has the constant 5"), "{:?}", probe("five a"));
            assert!(probe("next p->v")[0].contains("may have changed what callers pass"), "{:?}", probe("next p->v"));
        });
    }
}

fn errors_name_what_is_there() {
    with(&["-O2", "-g"], |probe| {
        let is = |definition: &str, words: &str| {
            let found = probe(definition);
            assert_eq!(found, [words], "{definition}");
        };
        is("wrok1 n", "error: no function wrok1: did you mean work1?");
        is("zzz* n", "error: no function matches zzz*: list functions with -F");
        is("work1@u.c n", &probe("work1@u.c n")[0]);
        assert!(probe("work1@u.c n")[0].starts_with("error: function work1 is not in a file u.c, but in /"));
        is("u.c:3", "error: no source file u.c: did you mean t.c?");
        is("t.c:9000", "error: no code is on line 9000 of t.c: the nearest are 21");
        is("work1:100", "error: no code is on line 100 of work1: the nearest are 0");
        is("work1+1", "error: work1+0x1 is inside of an instruction, which begins at work1+0x0");
        is("work1+0x1000", &probe("work1+0x1000")[0]);
        assert!(probe("work1+0x1000")[0].starts_with("error: work1+0x1000 is beyond the function, which has 0x"));
        is("inl%return", "error: function inl is inlined wherever it is called: no instruction returns from it");
        let n = |words: &str| format!("work1 (also also) {words}");
        is("work1 m", &n("m: no variable m is there; there are l, n, pg"));
        is(
            "work1 pg->b",
            &n("b: struct page has no member b; there are a, c, h, flags, mode, name, arr, next and 3 more"),
        );
        is("work1 pg.a", &n("a: struct page * is a pointer: write ->a"));
        is("work1 pg->in->x", &n("x: struct inner is no pointer: write .x"));
        is("work1 n->x", &n("x: int has no members"));
        is("work1 n[1]", &n("n: int has no elements"));
        is("work1 pg->arr", &n("arr: int[] is an array: take an element, [0] for example, or :string"));
        is("work1 pg->arr[4]", &n("arr: index 4 is beyond int[]"));
        is("work1 pg->in", &n("in: struct inner is no single value: take one of .x"));
        is(
            "work1 pg->h->z",
            &n("z: struct hidden is only declared here: its members are not in the debug information"),
        );
        is("work1 n:string", &n("n: int cannot be taken as string: it is neither a pointer nor an array"));
        is("work1 $retval", &n("retval: $retval is only at a return: write FUNCTION%return"));
        is("work1%return n", &n("n: at a return there is only $retval: variables are gone"));
        is("work1 %zz", &n("zz: no register %zz"));
        is("work1 @nope", &n("nope: no symbol nope"));
        is("nothing%return $retval", "nothing retval: the function returns nothing");
        is("work2 d", "work2 d: it is in the floating-point register %xmm0, which a probe cannot read");
        is("work1 n:q", "error: argument 'n:q': its type is none of s8 to s64, u8, x8, string, ustring");
        is("work1 $x", "error: argument '$x': the only name with $ is $retval");
        is("work1 n..x", "error: argument 'n..x': after a name come only .member, ->member and [number]");
    });
}

fn a_file_without_debug_information_says_what_would_give_it() {
    with(&["-O2", "-Wl,--build-id=0x0123456789"], |probe| {
        assert_eq!(
            probe("work2 n"),
            [
                "work2 n: it needs debug information: the file has none; /usr/lib/debug/.build-id/01/23456789.debug is not \
              there. Compile with -g, or install the debug package of build id 0123456789"
            ]
        );
        assert_eq!(probe("work2 %si:string"), ["work2 si=+0(%si):string"]);
        assert_eq!(probe("work2+4"), probe("work2+4"));
        assert_eq!(probe("work2%return $retval"), ["work2 retval=%ax:x64"]);
        assert!(probe("work2:3")[0].starts_with("error: a line needs debug information: the file has none; /usr"));
    });
}

/// Why the file of [`SOURCE`] has no debug information, when it has the build id 0123456789.
const WHY: &str = "the file has none; /usr/lib/debug/.build-id/01/23456789.debug is not there. Compile with -g, or install \
                   the debug package of build id 0123456789";

fn a_stripped_file_is_probed_by_address() {
    let options = ["-O2", "-no-pie", "-Wl,--build-id=0x0123456789", "-Wl,-e,work2"];
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), ("gcc", SOURCE), &options) else { return };
    let bytes = std::fs::read(&program).unwrap();
    // The entry point of the file is a function whose address is thereby known.
    let at = format!("{:#x}", u64::from_le_bytes(bytes[24..32].try_into().unwrap()));
    with(&[&options[..], &["-s"]].concat(), |probe| {
        let is = |definition: &str, words: &str| assert_eq!(probe(definition), [words], "{definition}");
        for name in ["work2", "work*"] {
            let words = format!(
                "error: no function {name}: the file has no names of its functions: {WHY}; a probe by address (0x...) \
                 needs no names"
            );
            is(&format!("{name} n"), &words);
        }
        is(&format!("{at} %si:string"), &format!("{at} si=+0(%si):string"));
        is(&format!("{at} n"), &format!("{at} n: it needs debug information: {WHY}"));
        is(&format!("{at}%return $retval"), &format!("{at} retval=%ax:x64"));
        is(&format!("{at}:1"), &format!("error: a line needs debug information: {WHY}"));
        let first = &probe("0x10 %si")[0];
        assert!(first.starts_with("error: no code is at 0x10: the file has code at 0x401000-0x4"), "{first}");
    });
}

fn addresses_are_those_of_functions_and_copies() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(folder.path(), ("gcc", SOURCE), &["-O2", "-g"]) else { return };
    let bytes = std::fs::read(&program).unwrap();
    let store = Store::new();
    let binary = Binary::open(&store, &program, &bytes, &read, 2).unwrap();
    let points = |text: &str| parse(text).and_then(|definition| binary.probe(&definition));
    for (name, argument) in [("work1", "pg->a"), ("work2", "n"), ("inl", "k"), ("inl", "p->x")] {
        for point in points(&format!("{name} {argument}")).unwrap() {
            if name == "inl" && point.entry == Some(point.address) {
                // The function around the copy begins there, and is the one that is meant.
                let found = points(&format!("{:#x} a", point.address)).unwrap();
                assert_eq!(found[0].function, "copies");
                continue;
            }
            let same = points(&format!("{:#x} {argument}", point.address)).unwrap();
            assert_eq!(same, [point]);
        }
    }
    let work1 = points("work1").unwrap().remove(0);
    let error = |text: &str| points(text).unwrap_err().to_string();
    let inside = work1.address + 1;
    assert_eq!(error(&format!("{inside:#x} n")), "work1+0x1 is inside of an instruction, which begins at work1+0x0");
    let second = points(&format!("{:#x}", work1.address + 4)).map_or(5, |_| 4) + work1.address;
    assert_eq!(
        error(&format!("{second:#x}%return $retval")),
        format!(
            "{second:#x} is inside of work1, which begins at {:#x}: only there a return can be probed",
            work1.address
        )
    );
    assert_eq!(
        error(&format!("{:#x}+4", work1.address)),
        format!("{:#x} is an address: write the one that is meant, without a line or an offset", work1.address)
    );
}

fn a_line_of_several_files_is_ambiguous() {
    let folder = tempfile::tempdir().unwrap();
    let text = "int NAME(int n)\n{\n\treturn n + 1;\n}\n";
    for (at, name) in [("a", "first"), ("b", "second")] {
        std::fs::create_dir(folder.path().join(at)).unwrap();
        std::fs::write(folder.path().join(at).join("same.c"), text.replace("NAME", name)).unwrap();
    }
    let source = "int first(int n), second(int n);\nint main(int n) { return first(n) + second(n); }";
    let options = ["-g", "-O0", "a/same.c", "b/same.c"];
    let Some(program) = compile(folder.path(), ("gcc", source), &options) else { return };
    let bytes = std::fs::read(&program).unwrap();
    let store = Store::new();
    let binary = Binary::open(&store, &program, &bytes, &read, 2).unwrap();
    let points = |text: &str| parse(text).and_then(|definition| binary.probe(&definition));
    let root = folder.path().display();
    assert_eq!(
        points("same.c:3 n").unwrap_err().to_string(),
        format!("same.c is {root}/a/same.c or {root}/b/same.c: say which by more of its path")
    );
    let found = points("a/same.c:3 n").unwrap();
    assert_eq!((found.len(), &*found[0].function), (1, "first"));
}

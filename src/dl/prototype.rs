//! Prototypes of C functions, as the host declares them: the table of functions whose only effect is their result, and
//! declarations in C. An object that runs in the sandbox cannot vouch for a prototype: with
//! `long write(int, unsigned long, unsigned long)` a pointer would be a number that nothing checks.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinbpf_isa::program::{Signature, ValType};

/// Functions of glibc that compute a result from their arguments and touch nothing else but `errno` and the state of the
/// floating-point unit. A library is known by the name of the file that its symbol lies in.
const PURE: &[(&str, &str)] = &[
    (
        "libc.so.6",
        "int abs(int); long labs(long); long imaxabs(long); long long llabs(long long); int ffs(int); int ffsl(long); int ffsll(long long);",
    ),
    (LIBM, MATH),
    (LIBM, BESSEL),
];

const LIBM: &str = "libm.so.6";

/// Each has a variant for `float`, whose name ends with `f`.
const MATH: &str = "
    double acos(double); double asin(double); double atan(double); double atan2(double, double);
    double cos(double); double sin(double); double tan(double);
    double acosh(double); double asinh(double); double atanh(double); double cosh(double); double sinh(double); double tanh(double);
    double exp(double); double exp2(double); double expm1(double);
    double log(double); double log2(double); double log10(double); double log1p(double); double logb(double); int ilogb(double);
    double pow(double, double); double sqrt(double); double cbrt(double); double hypot(double, double);
    double erf(double); double erfc(double); double tgamma(double);
    double ceil(double); double floor(double); double trunc(double); double round(double); double rint(double); double nearbyint(double);
    long lround(double); long long llround(double); long lrint(double); long long llrint(double);
    double fabs(double); double fmod(double, double); double remainder(double, double); double drem(double, double);
    double fmax(double, double); double fmin(double, double); double fdim(double, double); double fma(double, double, double);
    double copysign(double, double); double nextafter(double, double);
    double ldexp(double, int); double scalbn(double, int); double scalbln(double, long);";

const BESSEL: &str = "
    double j0(double); double j1(double); double jn(int, double); double y0(double); double y1(double); double yn(int, double);";

/// The prototype of a function that may be called with any arguments.
pub(super) fn pure_function(library: &str, symbol: &str) -> Option<Signature> {
    let mut tables = PURE.iter().filter(|(name, _)| *name == library);
    let found = tables.find_map(|(_, table)| declared(table, symbol).map(|text| text.to_owned()));
    let text = found.or_else(|| float_variant(library, symbol))?;
    declaration(&text).ok().map(|(_, signature)| signature)
}

/// The declaration of a function in a table. It is found as text: parsing the whole table for each symbol would be wasted.
fn declared<'a>(table: &'a str, symbol: &str) -> Option<&'a str> {
    table.split(';').find(|text| text.contains(&format!(" {symbol}(")))
}

/// The declaration of `cosf`, made of that of `cos`.
fn float_variant(library: &str, symbol: &str) -> Option<String> {
    let base = symbol.strip_suffix('f').filter(|_| library == LIBM)?;
    let text = declared(MATH, base)?;
    Some(text.replace("double", "float").replace(&format!(" {base}("), &format!(" {symbol}(")))
}

/// Declarations in C: function prototypes with scalar or pointer types, one after another, each with `;` but for the
/// last. Comments, lines of the preprocessor and `extern` are skipped.
pub(super) fn parse(text: &str) -> Result<BTreeMap<Arc<str>, Signature>, String> {
    let text = without_comments(text)?;
    let text: String = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n");
    let mut found = BTreeMap::new();
    for text in text.split(';').map(str::trim).filter(|text| !text.is_empty()) {
        let (name, signature) = declaration(text).map_err(|why| format!("'{text}': {why}"))?;
        match found.get(&*name) {
            Some(before) if *before != signature => {
                return Err(format!("'{text}': {name} is declared differently before"));
            }
            Some(_) => {}
            None => drop(found.insert(name.into(), signature)),
        }
    }
    Ok(found)
}

fn without_comments(text: &str) -> Result<String, String> {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some(at) = ["/*", "//"].iter().filter_map(|mark| rest.find(mark)).min() {
        kept.push_str(&rest[..at]);
        kept.push(' ');
        let (end, skip) = if rest[at..].starts_with("//") { ("\n", 0) } else { ("*/", 2) };
        rest = match rest[at + 2..].find(end) {
            Some(length) => &rest[at + 2 + length + skip..],
            None if skip == 0 => "",
            None => return Err("a comment has no end".to_owned()),
        };
    }
    kept.push_str(rest);
    Ok(kept)
}

fn declaration(text: &str) -> Result<(String, Signature), String> {
    let shape = "it is no prototype such as 'double f(double, int)'";
    let (head, params) = text.trim().strip_suffix(')').and_then(|text| text.split_once('(')).ok_or(shape)?;
    let mut words = words(head);
    let name = words.pop().filter(|name| is_name(name)).ok_or(shape)?;
    let result = value_type(&words)?;
    let mut signature = Signature { params: Vec::new(), result, variadic: false };
    if params.contains(['(', ')', '[']) {
        return Err("parameters that are functions or arrays are not supported: write a pointer".to_owned());
    }
    if self::words(params) == ["void"] {
        return Ok((name, signature));
    }
    if params.trim().is_empty() {
        return Err("it says nothing of its parameters: write (void) if there are none".to_owned());
    }
    for param in params.split(',') {
        if signature.variadic {
            return Err("parameters follow '...'".to_owned());
        }
        if param.trim() == "..." {
            signature.variadic = true;
            continue;
        }
        let mut words = self::words(param);
        let ty = value_type(&words).or_else(|why| {
            // The last word may be the parameter's name.
            words.pop().filter(|name| is_name(name)).ok_or(why.clone())?;
            value_type(&words).map_err(|_| why)
        })?;
        if ty == ValType::Void {
            return Err("a parameter is void".to_owned());
        }
        signature.params.push(ty);
    }
    Ok((name, signature))
}

/// Names and stars.
fn words(text: &str) -> Vec<String> {
    text.replace('*', " * ").split_whitespace().map(str::to_owned).collect()
}

const KEYWORDS: [&str; 10] = ["void", "float", "double", "char", "signed", "unsigned", "short", "int", "long", "_Bool"];

fn is_name(word: &str) -> bool {
    !KEYWORDS.contains(&word)
        && word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn value_type(words: &[String]) -> Result<ValType, String> {
    if words.iter().any(|word| word == "*") {
        return Ok(ValType::Pointer);
    }
    let qualifiers = ["const", "volatile", "restrict", "extern", "static", "register", "__restrict"];
    let mut words: Vec<&str> = words.iter().map(String::as_str).filter(|word| !qualifiers.contains(word)).collect();
    words.sort_unstable();
    let int = |size, signed| Ok(ValType::Int { size, signed });
    match words[..] {
        ["void"] => Ok(ValType::Void),
        ["float"] => Ok(ValType::Float { size: 4 }),
        ["double"] => Ok(ValType::Float { size: 8 }),
        // `char` is signed on x86-64 and unsigned on ARM, for which this would be compiled as well.
        ["char"] => int(1, std::ffi::c_char::MIN != 0),
        ["char", "signed"] | ["int8_t" | "__s8"] => int(1, true),
        ["char", "unsigned"] | ["uint8_t" | "__u8" | "u8" | "_Bool" | "bool"] => int(1, false),
        ["short"] | ["int", "short"] | ["short", "signed"] | ["int", "short", "signed"] | ["int16_t" | "__s16"] => {
            int(2, true)
        }
        ["short", "unsigned"] | ["int", "short", "unsigned"] | ["uint16_t" | "__u16" | "u16"] => int(2, false),
        ["int" | "signed"] | ["int", "signed"] | ["int32_t" | "__s32"] => int(4, true),
        ["unsigned"] | ["int", "unsigned"] | ["uint32_t" | "__u32" | "u32"] => int(4, false),
        ["size_t" | "uintptr_t" | "uint64_t" | "__u64" | "u64"] => int(8, false),
        ["ssize_t" | "intptr_t" | "ptrdiff_t" | "int64_t" | "__s64" | "off_t" | "time_t"] => int(8, true),
        _ => long(&words),
    }
}

/// `long` and `long long` in all their spellings.
fn long(words: &[&str]) -> Result<ValType, String> {
    let count = |wanted: &str| words.iter().filter(|word| **word == wanted).count();
    let (longs, signed, unsigned, ints) = (count("long"), count("signed"), count("unsigned"), count("int"));
    let known = longs + signed + unsigned + ints == words.len();
    match (known, longs, signed + unsigned, ints) {
        (true, 1..=2, 0..=1, 0..=1) => Ok(ValType::Int { size: 8, signed: unsigned == 0 }),
        _ if words.is_empty() => Err("a type is missing".to_owned()),
        _ => Err(format!(
            "'{}' is not among the types that can be declared: C's own, stdint.h's and pointers",
            words.join(" ")
        )),
    }
}

/// A prototype in C, with the usual type of each class.
pub(super) fn text(name: &str, signature: &Signature) -> String {
    let mut params: Vec<&str> = signature.params.iter().copied().map(type_name).collect();
    if signature.variadic {
        params.push("...");
    }
    let params = if params.is_empty() { "void".to_owned() } else { params.join(", ") };
    format!("{} {name}({params})", type_name(signature.result))
}

fn type_name(ty: ValType) -> &'static str {
    match ty {
        ValType::Void => "void",
        ValType::Int { size: 1, signed: true } => "signed char",
        ValType::Int { size: 1, signed: false } => "unsigned char",
        ValType::Int { size: 2, signed: true } => "short",
        ValType::Int { size: 2, signed: false } => "unsigned short",
        ValType::Int { size: 4, signed: true } => "int",
        ValType::Int { size: 4, signed: false } => "unsigned int",
        ValType::Int { signed: true, .. } => "long",
        ValType::Int { signed: false, .. } => "unsigned long",
        ValType::Float { size: 4 } => "float",
        ValType::Float { .. } => "double",
        ValType::Pointer => "void *",
        ValType::Unsupported => "(a type that fits into no register)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<String, String> {
        let found = parse(text)?;
        let (name, signature) = found.iter().next().ok_or("nothing")?;
        Ok(super::text(name, signature))
    }

    #[test]
    fn prototypes_are_parsed() {
        assert_eq!(one("double f(double, int)").unwrap(), "double f(double, int)");
        assert_eq!(one("extern unsigned long long int f(void);").unwrap(), "unsigned long f(void)");
        assert_eq!(one("const char *f(const char *name, uint8_t)").unwrap(), "void * f(void *, unsigned char)");
        assert_eq!(one("int printf(const char *, ...);").unwrap(), "int printf(void *, ...)");
        assert_eq!(
            one("/* a */ long int // b\n f(signed x, unsigned short int y)").unwrap(),
            "long f(int, unsigned short)"
        );
        let header = "#include <math.h>\nfloat a(float);\nint b(long n);\nfloat a(float x);\n";
        assert_eq!(parse(header).unwrap().len(), 2);
    }

    #[test]
    fn malformed_prototypes_are_refused() {
        for text in [
            "double",
            "f(int)",
            "struct s f(int)",
            "int f()",
            "int f(int (*g)(int))",
            "int f(...,int)",
            "int f(void, int)",
            "int f(int); long f(int)",
            "/* int f(int)",
            "int 3(int)",
            "int f(long double)",
            "int f(int x y)",
            "(",
            ")",
            "int f(int))",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_table_is_all_scalars() {
        let mut count = 0;
        for (library, declarations) in PURE {
            for (name, signature) in parse(declarations).unwrap() {
                let scalar = |ty: &ValType| matches!(ty, ValType::Int { .. } | ValType::Float { .. });
                assert!(scalar(&signature.result) && signature.params.iter().all(scalar), "{name}");
                assert_eq!(pure_function(library, &name), Some(signature), "{name}");
                count += 1;
            }
        }
        for (name, signature) in parse(MATH).unwrap() {
            let float = |ty: &ValType| if let ValType::Float { .. } = ty { ValType::Float { size: 4 } } else { *ty };
            let (params, result) = (signature.params.iter().map(float).collect(), float(&signature.result));
            let wanted = Signature { params, result, ..signature };
            assert_eq!(pure_function(LIBM, &format!("{name}f")), Some(wanted), "{name}f");
            count += 1;
        }
        assert!(count > 100);
        assert_eq!(pure_function("libm.so.6", "write"), None);
        assert_eq!(pure_function("libc.so.6", "sqrt"), None);
        assert_eq!(pure_function("libm.so.6", "j0f"), None);
        assert_eq!(pure_function("libm.so.6", "acosff"), None);
    }
}

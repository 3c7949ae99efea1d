use super::*;
use crate::helper::by_name;
use crate::host::HostFn;
use crate::host::fake::Fake;

fn function(name: &str) -> HostFn {
    by_name(name).unwrap()
}

/// Prints with up to four values.
fn print(fake: &mut Fake, format: &str, values: &[u64]) -> Result<String, Trap> {
    let format = fake.string(0, format);
    let args: Vec<u64> = [format].iter().chain(values).copied().collect();
    let length = fake.run(&function("printf"), &args)?;
    let printed = fake.printed();
    assert_eq!(length, printed.len() as u64);
    Ok(printed)
}

fn show(format: &str, values: &[u64]) -> String {
    print(&mut Fake::new(), format, values).unwrap()
}

fn show_float(format: &str, value: f64) -> String {
    show(format, &[value.to_bits()])
}

#[test]
fn integers() {
    let minus = -42i64 as u64;
    assert_eq!(show("%d|%5d|%-5d|%05d", &[42, 42, 42, 42]), "42|   42|42   |00042");
    assert_eq!(show("%d|%05d|%+d|% d", &[minus, minus, 42, 42]), "-42|-0042|+42| 42");
    assert_eq!(show("%.3d|%6.3d|%06.3d|%.0d|", &[7, 7, 7, 0]), "007|   007|   007||");
    assert_eq!(show("%u|%lu|%hu|%hhu", &[minus, minus, minus, minus]), "4294967254|18446744073709551574|65494|214");
    assert_eq!(show("%ld|%lld|%jd|%zd", &[1 << 40, minus, minus, 5]), "1099511627776|-42|-42|5");
    assert_eq!(
        show("%hhd|%hd|%d|%ld", &[0x1ff, 0x1_8000, 1 << 31, 1 << 63]),
        "-1|-32768|-2147483648|-9223372036854775808"
    );
    assert_eq!(show("%x|%X|%#x|%#X", &[0xbeef, 0xbeef, 0xbeef, 0xbeef]), "beef|BEEF|0xbeef|0XBEEF");
    assert_eq!(show("%o|%#o|%#o|%#.3o", &[8, 8, 0, 8]), "10|010|0|010");
    assert_eq!(show("%#x|%#.0x|%#010x|%-#8x|", &[0, 0, 0xab, 0xab]), "0||0x000000ab|0xab    |");
    assert_eq!(show("%b|%#b|%#B", &[5, 5, 5]), "101|0b101|0B101");
    assert_eq!(show("%*d|%-*d|", &[5, 1, 4, 2]), "    1|2   |");
    assert_eq!(show("%*d|%.*d", &[-4i64 as u64, 1, 3, 7]), "1   |007");
    assert_eq!(show("%.*d|100%%", &[-1i64 as u64, 7]), "7|100%");
}

#[test]
fn floats() {
    assert_eq!(show_float("%f", std::f64::consts::PI), "3.141593");
    assert_eq!(show_float("%.0f", 2.5), "2");
    assert_eq!(show_float("%.0f", 3.5), "4");
    assert_eq!(show_float("%#.0f", 3.0), "3.");
    assert_eq!(show_float("%.2f", 1.005), "1.00");
    assert_eq!(show_float("%e", 12345.678), "1.234568e+04");
    assert_eq!(show_float("%E", 1e-300), "1.000000E-300");
    assert_eq!(show_float("%g", 100000.0), "100000");
    assert_eq!(show_float("%g", 1000000.0), "1e+06");
    assert_eq!(show_float("%g", 0.0001), "0.0001");
    assert_eq!(show_float("%g", 0.00001), "1e-05");
    assert_eq!(show_float("%#g", 1.0), "1.00000");
    assert_eq!(show_float("%.3g", 999.9), "1e+03");
    // Not as glibc 2.36, which forgets a zero here.
    assert_eq!(show_float("%#.2g", 99.85), "1.0e+02");
    assert_eq!(show_float("%a", 1.0), "0x1p+0");
    assert_eq!(show_float("%a", -0.15625), "-0x1.4p-3");
    assert_eq!(show_float("%A", 1e10), "0X1.2A05F2P+33");
    assert_eq!(show_float("%8.2f|", -1.5), "   -1.50|");
    assert_eq!(show_float("%08.2f|", -1.5), "-0001.50|");
    assert_eq!(show_float("%-8.2f|", 1.5), "1.50    |");
    assert_eq!(show_float("%05f|%%", f64::INFINITY), "  inf|%");
    assert_eq!(show_float("%F", f64::NAN), "NAN");
    assert_eq!(show_float("%f", -0.0), "-0.000000");
    assert_eq!(show_float("%.1200f", 0.5).len(), 1202);
}

#[test]
fn strings_and_pointers() {
    let mut fake = Fake::new();
    let name = fake.string(100, "twinbpf");
    assert_eq!(print(&mut fake, "[%s|%10s|%-10s|%.4s]", &[name; 4]).unwrap(), "[twinbpf|   twinbpf|twinbpf   |twin]");
    assert_eq!(print(&mut fake, "%s|%.6s|%.5s|%c", &[0, 0, 0, 65]).unwrap(), "(null)|(null)||A");
    assert_eq!(
        print(&mut fake, "%p|%p|%12p|%-8p|", &[0, 0xbeef, 0xbeef, 0]).unwrap(),
        "(nil)|0xbeef|      0xbeef|(nil)   |"
    );
    assert_eq!(print(&mut fake, "%3c|%-3c|%lc", &[65, 65, 0xe4]).unwrap(), "  A|A  |ä");
    // A precision bounds what is read: no NUL is needed.
    fake.memory.write(4090, b"abcdef");
    let end = fake.at(4090);
    assert_eq!(print(&mut fake, "%.6s", &[end]).unwrap(), "abcdef");
    let trap = print(&mut fake, "%.7s", &[end]).unwrap_err();
    assert!(trap.detail().starts_with("argument 2 of printf (%.7s): 7-byte load"), "{trap}");
}

#[test]
fn values_from_an_array() {
    let mut fake = Fake::new();
    let format = fake.string(0, "%d %s %.1f %c %x %d\n");
    let text = fake.string(50, "two");
    let values = fake.words(1000, &[1, text, 3.25f64.to_bits(), 52, 5, 6]);
    fake.run(&function("twinbpf_printfv"), &[format, values, 6]).unwrap();
    assert_eq!(fake.printed(), "1 two 3.2 4 5 6\n");
    let trap = fake.run(&function("twinbpf_printfv"), &[format, values, 5]).unwrap_err();
    assert_eq!(
        trap.to_string(),
        "bad argument to a host function: format of twinbpf_printfv: no value for %d; the array holds 5"
    );
    fake.words(1000, &[1, 0x77]);
    let trap = fake.run(&function("twinbpf_printfv"), &[format, values, 6]).unwrap_err();
    assert!(
        trap.to_string()
            .starts_with("bad argument to a host function: value 2 of twinbpf_printfv (%s): 1-byte load from 0x77")
    );
    let trap = fake.run(&function("twinbpf_printfv"), &[format, fake.at(4088), 2]).unwrap_err();
    assert!(trap.detail().starts_with("argument 2 of twinbpf_printfv: 16-byte load"), "{trap}");
}

#[test]
fn unsupported_conversions_trap() {
    let why = |format: &str| print(&mut Fake::new(), format, &[1, 2, 3, 4]).unwrap_err().detail().to_owned();
    assert_eq!(why("x%n\n"), r#"format of printf: %n is refused, it would write to memory, at "%n\n""#);
    assert_eq!(why("%k"), r#"format of printf: unknown conversion, at "%k""#);
    assert_eq!(why("100%"), r#"format of printf: it ends inside a conversion, at "%""#);
    assert_eq!(why("%2$d"), r#"format of printf: numbered values are not supported, at "%2$d""#);
    assert_eq!(why("%99999999999d"), r#"format of printf: width or precision above 2147483647, at "%99999999999""#);
    assert_eq!(why("%ls"), r#"format of printf: wide strings are not supported, at "%ls""#);
    assert_eq!(
        why("%d%d%d%d %5x"),
        "format of printf: no value for %5x; registers carry at most four values, twinbpf_printfv takes more in an array"
    );
    assert_eq!(why("%2000000d"), "output of printf longer than 1048576 bytes");
}

#[test]
fn snprintf_cuts_and_counts() {
    let mut fake = Fake::new();
    let format = fake.string(0, "%s-%d");
    let text = fake.string(50, "hello");
    fake.memory.fill(100, 20, 0xff);
    let buf = fake.at(100);
    assert_eq!(fake.run(&function("snprintf"), &[buf, 6, format, text, 42]).unwrap(), 8);
    assert_eq!(fake.memory.to_vec(100, 7), b"hello\0\xff");
    assert_eq!(fake.run(&function("snprintf"), &[0, 0, format, text, 42]).unwrap(), 8);
    let trap = fake.run(&function("snprintf"), &[fake.at(4093), 6, format, text, 42]).unwrap_err();
    assert!(trap.detail().starts_with("argument 1 of snprintf: 6-byte store"), "{trap}");
    let values = fake.words(200, &[text, 7]);
    assert_eq!(fake.run(&function("twinbpf_snprintfv"), &[buf, 20, format, values, 2]).unwrap(), 7);
    assert_eq!(fake.memory.to_vec(100, 8), b"hello-7\0");
    let format = fake.string(300, "%*d");
    assert_eq!(fake.run(&function("snprintf"), &[0, 0, format, 2_000_000_000, 1]).unwrap(), 2_000_000_000);
}

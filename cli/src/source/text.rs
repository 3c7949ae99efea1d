//! Programs on the command line: `tp/syscalls/sys_enter_openat { count(&calls, comm()); }`, and C around them.

use std::borrow::Cow;
use std::sync::Arc;

use anyhow::{Result, bail};
use twinbpf_loader::section::{Abi, Attach, PERF_KEYS, PerfArg, PerfProbe, ProgType, SectionKind};
use twinbpf_trace::MOST_PARAMETERS;

use super::tokens::tokens;

/// The C source of a program text: what is not a probe stays as it is, each probe becomes a function.
pub(super) fn to_c(text: &str) -> Result<String> {
    let (mut headers, mut declarations, mut functions) = (String::new(), String::new(), String::new());
    let mut rest = text;
    let mut number = 0;
    while let Some(first) = tokens(rest).first() {
        rest = &rest[first.at..];
        let (head, body, tail) = statement(rest)?;
        let start = text.len() - rest.len();
        // So that messages have lines of the text.
        let line = format!("#line {} \"{}\"\n", text[..start].matches('\n').count() + 1, super::TEXT);
        match body.filter(|_| is_probe(head)) {
            Some(body) => {
                functions.push_str(&line);
                functions.push_str(&function(head.trim(), body, number)?);
                number += 1;
            }
            None => {
                let part = if is_of_kernel(head) { &mut headers } else { &mut declarations };
                part.push_str(&line);
                part.push_str(&rest[..rest.len() - tail.len()]);
                part.push('\n');
            }
        }
        rest = tail;
    }
    if number == 0 {
        bail!(
            "no program in '{}'; write SECTION {{ C }}, as in tp/sched/sched_process_exec {{ printf(\"%d\\n\", pid()); }}",
            text.trim()
        );
    }
    // libbpf's headers want the kernel's types.
    let types = if headers.contains("<bpf/") && !headers.contains("vmlinux.h") { TYPES } else { "" };
    let maps = super::MAPS;
    Ok(format!(
        "{types}{headers}#include <twinbpf/trace.h>\nstruct pt_regs;\n{declarations}\n{maps}\n{functions}LICENSE(\"GPL\");\n"
    ))
}

/// The kernel's types, where it shows them.
const TYPES: &str = "\
#if __has_include(\"vmlinux.h\")
#include \"vmlinux.h\"
#else
#include <linux/bpf.h>
#include <linux/ptrace.h>
#endif
";

/// Whether a line includes a header that comes before ours, which leaves out what the kernel's and libbpf's define.
fn is_of_kernel(line: &str) -> bool {
    let name = line.strip_prefix('#').and_then(|line| line.trim_start().strip_prefix("include")).unwrap_or_default();
    ["<bpf/", "<linux/", "<asm/", "<vmlinux.h>", "\"vmlinux.h\""].iter().any(|start| name.trim().starts_with(start))
}

/// The next line of the preprocessor, declaration or block: its head, the text in its braces, and what follows.
fn statement(text: &str) -> Result<(&str, Option<&str>, &str)> {
    if text.starts_with('#') {
        let end = text.find('\n').map_or(text.len(), |end| end + 1);
        return Ok((&text[..end], None, &text[end..]));
    }
    let (mut depth, mut open) = (0, None);
    for token in tokens(&without_false_comments(text)) {
        match token.text {
            "{" => {
                open = open.or(Some(token.at));
                depth += 1;
            }
            "}" => {
                depth -= 1;
                if depth == 0
                    && open.is_some_and(|open| is_probe(&text[..open]) || text[..open].trim_end().ends_with(')'))
                {
                    let open = open.expect("a brace was opened");
                    return Ok((&text[..open], Some(&text[open + 1..token.at]), &text[token.at + 1..]));
                }
            }
            ";" if depth == 0 && is_option(&text[..token.at]) => {}
            ";" if depth == 0 => return Ok((&text[..token.at], None, &text[token.at + 1..])),
            _ => {}
        }
        if depth < 0 {
            bail!("a }} without {{ in '{}'", text.trim());
        }
    }
    bail!("'{}' does not end: a ;, or a closing brace is missing", text.trim())
}

/// A text of the same length in which `uprobe//bin/sh:main` and `tp/sched/*` are no comments.
pub(super) fn without_false_comments(text: &str) -> Cow<'_, str> {
    const KINDS: [&str; 7] = ["uprobe", "uretprobe", "usdt", "tp", "tracepoint", "raw_tp", "tp_btf"];
    let mut masked = Cow::Borrowed(text);
    for (at, _) in text.match_indices("//").chain(text.match_indices("/*")) {
        let before = text[..at].rsplit(|c: char| c.is_whitespace() || c == ',').next().unwrap_or_default();
        if KINDS.contains(&before.split(['.', '/']).next().unwrap_or_default()) {
            masked.to_mut().replace_range(at..at + 2, "/_");
        }
    }
    masked
}

/// A section, also in bpftrace's notation.
fn section(text: &str) -> Result<Cow<'_, str>> {
    let words: Vec<&str> = text.split(':').collect();
    match words[..] {
        ["interval" | "i", unit @ ("s" | "ms" | "us"), count] => Ok(format!("TIMER/{count}{unit}").into()),
        ["interval" | "i", ..] => bail!("section {text}: write TIMER/1s, or ms or us: it runs in userspace"),
        ["profile" | "p", "hz", hz] => bail!("section {text}: write perf_event, and -F {hz}"),
        ["profile" | "p", ..] => bail!("section {text}: write perf_event, and how often in a second: -F 99"),
        ["software" | "hardware" | "s" | "h", event, ..] => {
            bail!("section {text}: write perf_event, and --attach PROGRAM={event}:HZ, with times in a second")
        }
        _ => Ok(twinbpf_kernel::catalog::section(text).map_or(Cow::Borrowed(text), Cow::Owned)),
    }
}

/// Whether a text ends in `key=value` of perf's notation.
fn is_option(text: &str) -> bool {
    let last = text.rsplit(';').next().unwrap_or_default().trim();
    let (key, value) = last.split_once('=').unwrap_or_default();
    PERF_KEYS.contains(&key) && !value.is_empty() && !value.contains(char::is_whitespace)
}

/// Whether the words before a brace are sections.
fn is_probe(head: &str) -> bool {
    let head = head.trim();
    !head.is_empty() && head.split(',').map(str::trim).all(|section| !section.is_empty() && is_section(section))
}

fn is_section(section: &str) -> bool {
    let has_blanks = section.contains(char::is_whitespace);
    match Attach::parse(section).kind {
        SectionKind::PerfProbe(_) => true,
        SectionKind::Unknown | SectionKind::Malformed(_) => !has_blanks && section.contains('/'),
        _ => !has_blanks,
    }
}

/// What a section says in perf's notation.
fn definition(section: &str) -> Option<Arc<PerfProbe>> {
    match Attach::parse(section).kind {
        SectionKind::PerfProbe(probe) => Some(probe),
        _ => None,
    }
}

/// The function of a definition in perf's notation: its arguments are parameters, or, where they are many, members of
/// `args`.
fn of_definition(section: &str, probe: &PerfProbe, name: &str, body: &str) -> Result<String> {
    let word = |text: &str| -> String {
        text.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
    };
    let declared = |arg: &PerfArg| match arg.ty.as_deref() {
        Some("string" | "ustring") => format!("const char *{}", word(&arg.name)),
        _ => format!("long {}", word(&arg.name)),
    };
    for (at, arg) in probe.args.iter().enumerate() {
        if probe.args[..at].iter().any(|other| word(&other.name) == word(&arg.name)) {
            bail!("section {section}: two arguments are called {0}; name one: NAME={1}", word(&arg.name), arg.expr);
        }
    }
    let args: Vec<String> = probe.args.iter().map(declared).collect();
    if args.len() <= MOST_PARAMETERS && probe.options.abi == Abi::Perf {
        let parameters: String = args.iter().map(|arg| format!(", {arg}")).collect();
        return Ok(format!(
            "SEC(\"{section}\") int {name}(void *ctx, int err{parameters}) {{ {{ {body} }} return 0; }}\n"
        ));
    }
    let abi = if probe.options.abi == Abi::Struct { "" } else { "abi=struct;" };
    let members: String = args.iter().map(|arg| format!(" {arg};")).collect();
    Ok(format!(
        "struct {name} {{{members} }};\nSEC(\"{abi}{section}\") int {name}(void *ctx, unsigned long failed, \
         struct {name} *args) {{ {{ {body} }} return 0; }}\n"
    ))
}

/// The functions of a probe, one for each of its sections.
fn function(head: &str, body: &str, number: usize) -> Result<String> {
    let mut text = String::new();
    for (index, section) in head.split(',').map(str::trim).enumerate() {
        let name = format!("program_{number}_{index}");
        let section = &*self::section(section)?;
        if section.contains('"') {
            bail!("section {section}: write it without quotes");
        }
        text.push_str(&match section {
            "BEGIN" => format!("int BEGIN(void) {{ {{ {body} }} return 0; }}\n"),
            "END" => format!("void END(void) {{ {body} }}\n"),
            _ => match (definition(section), &section.split('/').collect::<Vec<_>>()[..]) {
                (Some(probe), _) => of_definition(section, &probe, &name, body)?,
                (None, ["tp" | "tracepoint", category, event]) if !section.contains(['*', '?']) => {
                    // For the struct of its arguments.
                    format!("TP_NAMED({name}, {category}, {event}) {{ {{ {body} }} return 0; }}\n")
                }
                _ => {
                    let context = context(section);
                    format!("SEC(\"{section}\") int {name}({context} *ctx) {{ {{ {body} }} return 0; }}\n")
                }
            },
        });
    }
    Ok(text)
}

/// What the context of a section points to, for `PT_REGS_PARM1(ctx)` and its like.
fn context(section: &str) -> &'static str {
    match Attach::parse(section).kind {
        SectionKind::Known { row, .. } if row.prog == ProgType::Kprobe => "struct pt_regs",
        _ => "void",
    }
}

#[cfg(test)]
mod tests {
    use super::to_c;

    #[test]
    fn probes_become_functions() {
        let text = "int n; struct key { int a; };\ntp/sched/sched_switch { n++; if (n) { count(&x); } } END { printf(\"}%d\\n\", n); }";
        let c = to_c(text).unwrap();
        for line in [
            "int n;\n",
            "#line 1 \"-e\"\nstruct key { int a; };\n",
            "#line 2 \"-e\"\nTP_NAMED(",
            "TP_NAMED(program_0_0, sched, sched_switch) { {  n++; if (n) { count(&x); }  } return 0; }",
            "void END(void) {  printf(\"}%d\\n\", n);  }",
        ] {
            assert!(c.contains(line), "{line} in\n{c}");
        }
        let two = to_c("tp/a/b, tp/syscalls/sys_enter_* { f(); }").unwrap();
        assert!(
            two.contains("TP_NAMED(program_0_0, a, b)")
                && two.contains("SEC(\"tp/syscalls/sys_enter_*\") int program_0_1")
        );
        assert!(
            to_c("static int f(int a) { return a; } BEGIN { f(1); }")
                .unwrap()
                .contains("static int f(int a) { return a; }")
        );
    }

    #[test]
    fn headers_of_the_kernel_come_before_ours() {
        let order = |text: &str| {
            let c = to_c(text).unwrap();
            c.lines().filter_map(|line| line.strip_prefix("#include ")).map(str::to_owned).collect::<Vec<_>>()
        };
        let ours = "<twinbpf/trace.h>";
        assert_eq!(
            order("#include \"mine.h\"\n#include <bpf/bpf_tracing.h>\nBEGIN { }"),
            ["\"vmlinux.h\"", "<linux/bpf.h>", "<linux/ptrace.h>", "<bpf/bpf_tracing.h>", ours, "\"mine.h\""]
        );
        let text = "#include \"vmlinux.h\"\n#include <bpf/bpf_helpers.h>\nBEGIN { }";
        assert_eq!(order(text), ["\"vmlinux.h\"", "<bpf/bpf_helpers.h>", ours]);
        assert_eq!(order("#include <errno.h>\nBEGIN { }"), [ours, "<errno.h>"]);
    }

    #[test]
    fn definitions_in_perfs_notation_have_parameters() {
        let text = to_c("exec=./t;max=3;wk=work* n s=p->s:string { count(&c, n); }").unwrap();
        let line = "SEC(\"exec=./t;max=3;wk=work* n s=p->s:string\") int program_0_0(void *ctx, int err, long n, \
                    const char *s) { {  count(&c, n);  } return 0; }";
        assert!(text.contains(line), "{text}");
        let text = to_c("int x = 1; exec=./t;w=f a b c d { args->a; }").unwrap();
        assert!(text.contains("int x = 1"), "{text}");
        assert!(text.contains("struct program_0_0 { long a; long b; long c; long d; };\n"), "{text}");
        assert!(text.contains("SEC(\"abi=struct;exec=./t;w=f a b c d\") int program_0_0(void *ctx, unsigned long"));
        let error = to_c("exec=./t;w=f a->n b->n { }").unwrap_err().to_string();
        assert_eq!(error, "section exec=./t;w=f a->n b->n: two arguments are called n; name one: NAME=b->n");
    }

    #[test]
    fn probes_of_bpftrace_become_functions() {
        for (probe, section) in [
            ("uprobe:/bin/sh:main", "SEC(\"uprobe//bin/sh:main\") int program_0_0"),
            ("uretprobe//bin/sh:main", "SEC(\"uretprobe//bin/sh:main\") int program_0_0"),
            ("usdt//bin/sh:a:b", "SEC(\"usdt//bin/sh:a:b\") int program_0_0"),
            ("tp/sched/*", "SEC(\"tp/sched/*\") int program_0_0"),
            ("kprobe:vfs_read", "SEC(\"kprobe/vfs_read\") int program_0_0"),
            ("tracepoint:sched:sched_switch", "TP_NAMED(program_0_0, sched, sched_switch)"),
            ("sched:sched_switch", "SEC(\"sched:sched_switch\") int program_0_0"),
            ("interval:ms:100", "SEC(\"TIMER/100ms\") int program_0_0"),
        ] {
            let text = to_c(&format!("int n; // not n;\n{probe} {{ n++; }} // }}")).unwrap();
            assert!(text.contains(section) && text.contains("{  n++;  }"), "{text}");
        }
        for (probe, remedy) in [
            ("profile:hz:99", "section profile:hz:99: write perf_event, and -F 99"),
            ("interval:hz:5", "section interval:hz:5: write TIMER/1s, or ms or us: it runs in userspace"),
        ] {
            assert_eq!(to_c(&format!("{probe} {{ }}")).unwrap_err().to_string(), remedy);
        }
    }

    #[test]
    fn texts_that_are_no_programs_are_errors() {
        for (text, why) in
            [("", "no program"), ("int n;", "no program"), ("BEGIN { f();", "does not end"), ("} BEGIN {}", "without")]
        {
            assert!(to_c(text).unwrap_err().to_string().contains(why), "{text}");
        }
    }
}

//! Programs on the command line: `tp/syscalls/sys_enter_openat { count(&calls, comm()); }`, and C around them.

use anyhow::{Result, bail};
use twinbpf_loader::section::{Attach, SectionKind};

use super::tokens::tokens;

/// The C source of a program text: what is not a probe stays as it is, each probe becomes a function.
pub(super) fn to_c(text: &str) -> Result<String> {
    let (mut declarations, mut functions) = (String::new(), String::new());
    let mut rest = text;
    let mut number = 0;
    while !rest.trim().is_empty() {
        let (head, body, tail) = statement(rest)?;
        let start = text.len() - rest.trim_start().len();
        // So that messages have lines of the text.
        let line = format!("#line {} \"{}\"\n", text[..start].matches('\n').count() + 1, super::TEXT);
        match body.filter(|_| is_probe(head)) {
            Some(body) => {
                functions.push_str(&line);
                functions.push_str(&function(head.trim(), body, number)?);
                number += 1;
            }
            None => {
                declarations.push_str(&line);
                declarations.push_str(rest[..rest.len() - tail.len()].trim_start());
                declarations.push('\n');
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
    Ok(format!("#include <twinbpf/trace.h>\n{declarations}\n{}\n{functions}LICENSE(\"GPL\");\n", super::MAPS))
}

/// The next line of the preprocessor, declaration or block: its head, the text in its braces, and what follows.
fn statement(text: &str) -> Result<(&str, Option<&str>, &str)> {
    let start = text.len() - text.trim_start().len();
    if text[start..].starts_with('#') {
        let end = text[start..].find('\n').map_or(text.len(), |end| start + end + 1);
        return Ok((&text[start..end], None, &text[end..]));
    }
    let (mut depth, mut open) = (0, None);
    for token in tokens(text) {
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
            ";" if depth == 0 => return Ok((&text[..token.at], None, &text[token.at + 1..])),
            _ => {}
        }
        if depth < 0 {
            bail!("a }} without {{ in '{}'", text.trim());
        }
    }
    bail!("'{}' does not end: a ;, or a closing brace is missing", text.trim())
}

/// Whether the words before a brace are sections.
fn is_probe(head: &str) -> bool {
    let head = head.trim();
    !head.is_empty() && head.split(',').map(str::trim).all(|section| !section.is_empty() && is_section(section))
}

fn is_section(section: &str) -> bool {
    let known = !matches!(Attach::parse(section).kind, SectionKind::Unknown | SectionKind::Malformed(_));
    !section.contains(char::is_whitespace) && (known || section.contains('/'))
}

/// The functions of a probe, one for each of its sections.
fn function(head: &str, body: &str, number: usize) -> Result<String> {
    let mut text = String::new();
    for (index, section) in head.split(',').map(str::trim).enumerate() {
        let name = format!("program_{number}_{index}");
        if section.contains('"') {
            bail!("section {section}: write it without quotes");
        }
        text.push_str(&match section {
            "BEGIN" => format!("int BEGIN(void) {{ {{ {body} }} return 0; }}\n"),
            "END" => format!("void END(void) {{ {body} }}\n"),
            _ => match section.split('/').collect::<Vec<_>>()[..] {
                ["tp" | "tracepoint", category, event] if !section.contains(['*', '?']) => {
                    // For the struct of its arguments.
                    format!("TP_NAMED({name}, {category}, {event}) {{ {{ {body} }} return 0; }}\n")
                }
                _ => format!("SEC(\"{section}\") int {name}(void *ctx) {{ {{ {body} }} return 0; }}\n"),
            },
        });
    }
    Ok(text)
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
    fn texts_that_are_no_programs_are_errors() {
        for (text, why) in
            [("", "no program"), ("int n;", "no program"), ("BEGIN { f();", "does not end"), ("} BEGIN {}", "without")]
        {
            assert!(to_c(text).unwrap_err().to_string().contains(why), "{text}");
        }
    }
}

//! Templates written to do harm: each ends within seconds in an error, and this process lives on.

use std::path::Path;
use std::time::{Duration, Instant};

use loquat::chat::{Message, Role};
use loquat::engine::prompt::{ChatTemplate, PromptError, chat_input};

use crate::text_golden::unofficial;

fn render(source: &str) -> Result<String, PromptError> {
    let started = Instant::now();
    let result =
        unofficial(source).render(&chat_input(&[Message::text(Role::User, "hi")], None, str::to_owned));
    // The wall limit, and room for a busy machine.
    assert!(started.elapsed() < Duration::from_secs(9), "took {:?}", started.elapsed());
    result
}

fn assert_refused(source: &str) {
    let error = render(source).expect_err("a hostile template must not get through");
    assert!(matches!(error, PromptError::Failed(_) | PromptError::Stopped(_)), "{error}");
}

#[test]
fn a_huge_range_is_refused() {
    assert_refused("{{ range(1000000000)|list|length }}");
}

#[test]
fn nested_loops_are_refused() {
    let range = "range(9999)";
    assert_refused(&format!(
        "{{% for a in {range} %}}{{% for b in {range} %}}{{% for c in {range} %}}{{% endfor %}}{{% endfor %}}{{% endfor %}}"
    ));
}

#[test]
fn a_string_doubled_forty_times_is_refused() {
    assert_refused(
        "{% set ns = namespace(s='x') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    );
}

#[test]
fn a_list_doubled_forty_times_is_refused() {
    let doubled =
        "{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}";
    assert_refused(&format!("{doubled}{{{{ ns.l|tojson }}}}"));
    assert_refused(&format!("{doubled}{{{{ ns.l }}}}"));
}

#[test]
fn a_list_nested_a_hundred_thousand_deep_is_refused() {
    assert_refused(
        "{% set ns = namespace(l=[1]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
    );
}

#[test]
fn a_multiplied_string_is_refused() {
    assert_refused("{{ 'x' * 2000000000 }}");
}

#[test]
fn replacing_letters_by_long_strings_is_refused() {
    assert_refused("{% set s = 'a' * 100000 %}{{ s.replace('a', 'b' * 100000)|length }}");
    assert_refused("{% set s = 'a' * 100000 %}{{ s|replace('a', 'b' * 100000)|length }}");
}

#[test]
fn joining_with_long_glue_is_refused() {
    assert_refused("{% set glue = 'x' * 20000 %}{{ range(99999)|join(glue)|length }}");
    assert_refused("{% set glue = 'x' * 20000 %}{{ glue.join(range(99999))|length }}");
}

#[test]
fn json_with_a_huge_indent_is_refused() {
    assert_refused("{{ [1]|tojson(indent=4000000000) }}");
}

#[test]
fn recursion_without_end_is_refused() {
    assert_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
}

#[test]
fn twenty_thousand_brackets_are_refused() {
    assert_refused(&format!("{{{{ {}{} }}}}", "[".repeat(20_000), "]".repeat(20_000)));
}

#[test]
fn system_files_cannot_be_included() {
    assert_refused("{% include '/etc/passwd' %}");
    assert_refused("{% import '../../etc/passwd' as x %}");
}

#[test]
fn output_over_sixteen_mebibytes_is_refused() {
    assert_refused("{{ 'x' * 17000000 }}");
}

#[test]
fn a_plain_template_is_rendered_and_its_objection_is_kept() {
    assert_eq!(render("<{{ messages[0].content }}>").unwrap(), "<hi>");
    assert!(
        matches!(render("{{ raise_exception('no') }}"), Err(PromptError::Raised(message)) if message == "no")
    );
}

#[test]
fn a_long_conversation_passes_through_the_pipes() {
    let long = "word ".repeat(400_000);
    let input = chat_input(&[Message::text(Role::User, &long)], None, str::to_owned);
    let text = unofficial("{{ messages[0].content }}").render(&input).unwrap();
    assert_eq!(text, long);
}

#[test]
fn a_renderer_that_cannot_run_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("chat_template.jinja"), "x").unwrap();
    let template = ChatTemplate::open_with_renderer(dir.path(), Path::new("/nowhere/loquat")).unwrap();
    let error = template.render(&chat_input(&[], None, str::to_owned)).unwrap_err();
    assert!(error.to_string().contains("/nowhere/loquat"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_renderer_that_hangs_is_killed() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("chat_template.jinja"), "x").unwrap();
    let exe = dir.path().join("hangs");
    std::fs::write(&exe, "#!/bin/sh\nexec sleep 60\n").unwrap();
    std::fs::set_permissions(&exe, std::fs::Permissions::from_mode(0o755)).unwrap();
    let template = ChatTemplate::open_with_renderer(dir.path(), &exe).unwrap();
    let started = Instant::now();
    let error = template.render(&chat_input(&[], None, str::to_owned)).unwrap_err();
    assert!(matches!(error, PromptError::Stopped(_)), "{error}");
    assert!(started.elapsed() < Duration::from_secs(9));
}

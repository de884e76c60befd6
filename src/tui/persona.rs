//! Personas: system prompts of the settings, which may name what is known when they are taken, as `{{ date }}`.

use std::collections::BTreeMap;

use minijinja::{Environment, UndefinedBehavior, context};

/// Far more than a prompt takes; one that never ends must not hang the chat.
const FUEL: u64 = 1_000_000;

/// What a persona can name, beside what is given with its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Of today, here: `2026-12-01`.
    pub date: String,
    pub model: String,
    /// The working folder.
    pub cwd: String,
}

/// `NAME key=value …` in its parts. A name with spaces counts only if there is such a persona.
pub fn split(
    given: &str,
    is_known: impl Fn(&str) -> bool,
) -> Result<(String, BTreeMap<String, String>), String> {
    if is_known(given) {
        return Ok((given.to_owned(), BTreeMap::new()));
    }
    let mut words = given.split_whitespace();
    let name = words.next().unwrap_or_default().to_owned();
    let mut vars: BTreeMap<String, String> = BTreeMap::new();
    let mut last: Option<String> = None;
    for word in words {
        match (word.split_once('='), &last) {
            (Some((key, value)), _) if !key.is_empty() => {
                vars.insert(key.to_owned(), value.to_owned());
                last = Some(key.to_owned());
            }
            // A value of several words.
            (_, Some(key)) => {
                let value = vars.entry(key.clone()).or_default();
                value.push(' ');
                value.push_str(word);
            }
            (_, None) => return Err(format!("/persona takes a name and KEY=VALUE, not {word}")),
        }
    }
    Ok((name, vars))
}

/// # Errors
/// A sentence about what is wrong with the text.
pub fn render(text: &str, facts: &Facts, vars: &BTreeMap<String, String>) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_fuel(Some(FUEL));
    let Facts { date, model, cwd } = facts;
    let rendered = environment.render_str(text, context! { date, model, cwd, vars });
    rendered.map_err(|error| match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_and_given_values_are_put_in() {
        let facts = Facts { date: "2026-12-01".into(), model: "m".into(), cwd: "/tmp".into() };
        let text = "{{ date }}, {{ model }} in {{ cwd }}: into {{ vars.lang | default('English') }}.";
        let with = |given| render(text, &facts, &split(given, |_| false).unwrap().1);
        assert_eq!(with("x").unwrap(), "2026-12-01, m in /tmp: into English.");
        assert_eq!(with("x lang=Old Norse").unwrap(), "2026-12-01, m in /tmp: into Old Norse.");
        assert!(render("{{ nothing }}", &facts, &BTreeMap::new()).is_err());
        assert!(render("{{ oh", &facts, &BTreeMap::new()).unwrap_err().contains("syntax"));
        assert!(
            render(
                "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
                &facts,
                &BTreeMap::new()
            )
            .is_err()
        );
    }

    #[test]
    fn a_name_with_spaces_is_one_if_it_is_known() {
        assert_eq!(split("my one", |name| name == "my one").unwrap().0, "my one");
        assert_eq!(split("my one", |_| false), Err("/persona takes a name and KEY=VALUE, not one".into()));
    }
}

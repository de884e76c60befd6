//! What a batch asks of every record, whatever the record says.

use std::fs;

use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde_json::{Value, json};

use super::form;
use super::record::{Record, key_of};
use crate::chat::{Detail, Part};
use crate::cli::{BatchArgs, BatchOverflow};
use crate::msg::{Form, ModelInfo, Mtp, Think, TurnOptions};
use crate::settings::Settings;

/// Far more than a prompt takes; a template that never ends must not hang a batch.
const TEMPLATE_FUEL: u64 = 10_000_000;

pub struct Plan {
    pub system: Option<String>,
    pub overflow: BatchOverflow,
    pub options: TurnOptions,
    /// Leaves out what differs from run to run.
    pub is_deterministic: bool,
    detail: Detail,
    /// Of records that have none.
    prompt: Option<String>,
    template: Option<Template>,
    quant: String,
}

struct Template {
    source: String,
    environment: Environment<'static>,
}

impl Plan {
    /// # Errors
    /// A sentence about a file that can't be used.
    pub fn new(settings: &Settings, args: &BatchArgs) -> Result<Self, String> {
        let mut options = settings.turn.clone();
        options.form = form(&args.form)?;
        options.only_count = args.dry_run;
        // Token ids are what a replay compares.
        options.logprobs = args.manifest.is_some().then_some(0);
        if args.deterministic {
            options.is_fresh = true;
            options.mtp = Some(Mtp::Off);
            options.sampling.seed.get_or_insert(0);
        }
        Ok(Self {
            system: settings.system.clone(),
            overflow: args.overflow,
            options,
            is_deterministic: args.deterministic,
            detail: settings.detail,
            prompt: args.read.prompt.clone(),
            template: args.read.template.as_deref().map(Template::new).transpose()?,
            quant: format!("{:?}", settings.load.quant),
        })
    }

    /// Puts into a record what the command has to say, and gives the settings of its turn.
    ///
    /// # Errors
    /// A sentence about what is missing.
    pub fn prepare(&self, record: &mut Record, index: usize) -> Result<TurnOptions, String> {
        let has_text =
            |record: &Record| record.question.parts.iter().any(|part| matches!(part, Part::Text(_)));
        if let Some(prompt) = &self.prompt
            && !has_text(record)
        {
            record.set_prompt(prompt.clone());
        }
        if let Some(template) = &self.template {
            let prompt = template.render(record, index)?;
            record.set_prompt(prompt);
        }
        if record.question.parts.is_empty() {
            return Err("it has neither prompt nor messages".into());
        }
        record.set_detail(self.detail);
        let mut options = record.options(&self.options);
        if record.options.sampling.seed.is_none() {
            options.sampling.seed = self.options.sampling.seed.map(|seed| record.seed(seed, index));
        }
        Ok(options)
    }

    /// What answers depend on besides the records.
    pub fn settings(&self, model: &ModelInfo) -> Value {
        let sampling = &self.options.sampling;
        json!({
            "model": model.name, "commit": model.commit, "quant": self.quant, "system": self.system,
            "prompt": self.prompt, "template": self.template.as_ref().map(|template| &template.source),
            "schema": match &self.options.form { Some(Form::Schema(schema)) => schema, _ => &Value::Null },
            "regex": match &self.options.form { Some(Form::Regex(regex)) => Some(regex), _ => None },
            "think": think(&self.options), "max_tokens": self.options.max_tokens,
            "detail": self.detail.to_string(), "temperature": sampling.temperature, "top_k": sampling.top_k,
            "top_p": sampling.top_p, "min_p": sampling.min_p, "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty, "repetition_penalty": sampling.repetition_penalty,
            "seed": sampling.seed, "overflow": format!("{:?}", self.overflow), "deterministic": self.is_deterministic,
        })
    }

    /// The same for the same settings.
    pub fn run(&self, model: &ModelInfo) -> String {
        key_of(&[self.settings(model).to_string().as_bytes()])
    }
}

/// `true`, `false` or the number of tokens; nothing if nothing was said.
fn think(options: &TurnOptions) -> Value {
    match options.think() {
        None => Value::Null,
        Some(Think::Off) => false.into(),
        Some(Think::On) => true.into(),
        Some(Think::Tokens(most)) => most.into(),
    }
}

impl Template {
    /// From the text itself, or from a file after an `@`.
    fn new(given: &str) -> Result<Self, String> {
        let source = match given.strip_prefix('@') {
            Some(path) => fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?,
            None => given.to_owned(),
        };
        let mut environment = Environment::new();
        // A variable that a record lacks is a mistake, not an empty text.
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(TEMPLATE_FUEL));
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        if let Err(error) = environment.template_from_str(&source) {
            return Err(format!("the template can't be used: {error}"));
        }
        Ok(Self { source, environment })
    }

    fn render(&self, record: &Record, index: usize) -> Result<String, String> {
        let prompt = record.question.plain_text();
        let values = json!({"prompt": prompt, "index": index, "id": record.id, "vars": record.vars});
        let text = self.environment.render_str(&self.source, minijinja::Value::from(Serde(&values)));
        text.map_err(|error| format!("the template can't be filled in: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(template: &str, line: &str) -> Result<String, String> {
        Template::new(template)?.render(&Record::from_json(line, 1).unwrap(), 4)
    }

    #[test]
    fn templates_see_the_record_and_miss_nothing_silently() {
        let line = r#"{"id":"a","prompt":"<b>","vars":{"lang":"de"}}"#;
        assert_eq!(
            rendered("{{ id }}{{ index }} in {{ vars.lang }}: {{ prompt }}", line).unwrap(),
            "a4 in de: <b>"
        );
        let error = rendered("{{ vars.place }}", line).unwrap_err();
        assert!(error.contains("can't be filled in"), "{error}");
        assert!(rendered("{% if %}", line).unwrap_err().contains("can't be used"));
        assert!(rendered("@/nowhere", line).unwrap_err().contains("cannot read /nowhere"));
        assert!(
            rendered("{% for i in range(9999) %}{% for i in range(9999) %}x{% endfor %}{% endfor %}", line)
                .is_err()
        );
    }
}

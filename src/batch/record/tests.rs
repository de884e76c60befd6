use super::super::input::read_records;
use super::*;
use crate::cli::{InputForm, ReadAs};
use serde_json::json;

fn read(bytes: &[u8], form: Option<InputForm>) -> Vec<Result<Record, BadRecord>> {
    let mut records = Vec::new();
    let mut form = form;
    read_records(bytes, &mut form, ReadAs::Text, |item| {
        records.push(item.record);
        true
    });
    records
}

fn prompts(bytes: &[u8]) -> Vec<String> {
    read(bytes, None).into_iter().map(|record| record.unwrap().question.plain_text()).collect()
}

fn why(line: &str) -> String {
    read(line.as_bytes(), Some(InputForm::Jsonl)).remove(0).unwrap_err().to_string()
}

#[test]
fn lines_are_prompts_whatever_their_ends() {
    assert_eq!(prompts(b"a\nb\n"), ["a", "b"]);
    assert_eq!(prompts(b"a\r\n\r\n  \nb"), ["a", "b"]);
    assert_eq!(prompts("\u{feff}a\n".as_bytes()), ["a"]);
    assert_eq!(prompts(b""), [] as [&str; 0]);
    assert_eq!(prompts(b"\n\n"), [] as [&str; 0]);
}

#[test]
fn an_object_on_the_first_line_makes_it_jsonl() {
    let line =
        r#"{"id":"a1","prompt":"p","system":"s","params":{"temperature":0,"max_tokens":5},"conv":"c"}"#;
    let record = read(format!("\n{line}\n").as_bytes(), None).remove(0).unwrap();
    assert_eq!(record.id, Some(json!("a1")));
    assert_eq!(record.question.plain_text(), "p");
    assert_eq!(record.system.as_deref(), Some("s"));
    assert_eq!(record.conversation, Some("c".into()));
    assert_eq!(record.options.sampling.temperature, Some(0.0));
    assert_eq!(record.options.max_tokens, Some(5));
    assert_eq!(prompts(b"a\n{\"prompt\":\"b\"}\n"), ["a", "{\"prompt\":\"b\"}"]);
}

#[test]
fn drafting_is_a_word_or_a_number() {
    let modes = [(r#""off""#, Mtp::Off), (r#""auto""#, Mtp::Auto), ("0", Mtp::Off), ("8", Mtp::Depth(8))];
    for (given, expected) in modes {
        let line = format!(r#"{{"prompt":"p","params":{{"mtp":{given}}}}}"#);
        let record = read(line.as_bytes(), None).remove(0).unwrap();
        let command = TurnOptions { mtp: Some(Mtp::Depth(2)), ..TurnOptions::default() };
        assert_eq!(record.options(&command).mtp, Some(expected));
    }
}

#[test]
fn the_last_of_the_messages_is_the_question() {
    let line = r#"{"messages":[{"role":"user","content":"q1"},{"role":"assistant","content":"a1"},{"role":"user","content":"q2"}]}"#;
    let record = read(line.as_bytes(), None).remove(0).unwrap();
    assert_eq!((record.earlier.len(), record.question.plain_text().as_str()), (2, "q2"));
}

#[test]
fn bad_records_say_their_line_and_the_next_ones_are_read() {
    let records = read(b"{\"prompt\":\"a\"}\nnonsense\n{\"prompt\":\"b\"}\n", None);
    assert_eq!(records.len(), 3);
    assert!(records[1].as_ref().unwrap_err().to_string().starts_with("line 2: not valid JSON"));
    assert!(records[2].is_ok());
    let records = read(b"ok\n\xff\xfe\nok\n", None);
    assert_eq!(records[1].as_ref().unwrap_err().to_string(), "line 2: it is not valid UTF-8");

    assert!(why("[1]").contains("not a JSON object"));
    assert!(why(r#"{"prompt":3}"#).contains("prompt is not text"));
    assert!(why(r#"{"prompt":"a","params":{"temprature":1}}"#).contains("params.temprature is unknown"));
    assert!(why(r#"{"prompt":"a","params":{"top_k":-1}}"#).contains("params.top_k is -1"));
    assert!(why(r#"{"prompt":"a","params":{"max_tokens":0}}"#).contains("at least 1"));
    for bad in [r#""on""#, r#""3""#, "9", "-1", "2.5", "true", "null"] {
        let why = why(&format!(r#"{{"prompt":"a","params":{{"mtp":{bad}}}}}"#));
        let expected = format!(r#"params.mtp is {bad}, expected "off", "auto" or a number up to 8"#);
        assert!(why.contains(&expected), "{why}");
    }
    assert!(why(r#"{"prompt":"a","schema":3}"#).contains("schema is not a JSON Schema"));
    assert!(why(r#"{"prompt":"a","schema":{},"regex":"a"}"#).contains("held to one of them"));
    assert!(why(r#"{"prompt":"a","vars":[]}"#).contains("vars is not an object"));
    assert!(why(r#"{"messages":[{"role":"assistant","content":"a"}]}"#).contains("must be a question"));
}

#[test]
fn settings_and_questions_in_two_places_are_refused_and_the_id_is_kept() {
    assert!(why(r#"{"prompt":"a","max_tokens":1}"#).contains("\"max_tokens\" belongs into \"params\""));
    assert!(why(r#"{"prompt":"a","messages":[{"role":"user","content":"b"}]}"#).contains("also prompt"));
    assert!(why(r#"{"prompt":" "}"#).contains("the prompt is empty"));
    let bad = read(br#"{"id":"a1","prompt":"x","params":{"top_k":-1}}"#, None).remove(0).unwrap_err();
    assert_eq!(bad.id, Some(json!("a1")));
}

#[test]
fn a_line_of_any_length_costs_no_more_than_the_limit() {
    let mut bytes = vec![b'x'; MAX_RECORD_BYTES + 100];
    bytes.extend(b"\nshort\n");
    let records = read(&bytes, None);
    assert_eq!(records[0].as_ref().unwrap_err().to_string(), "line 1: it is longer than 16 MiB");
    assert_eq!(records[1].as_ref().unwrap().question.plain_text(), "short");
}

#[test]
fn seeds_differ_by_record_and_not_by_order() {
    let record = |id: &str| Record { id: Some(json!(id)), ..Record::from_line("x") };
    assert_eq!(record("a").seed(1, 0), record("a").seed(1, 7));
    assert_ne!(record("a").seed(1, 0), record("b").seed(1, 0));
    assert_ne!(record("a").seed(1, 0), record("a").seed(2, 0));
    assert_ne!(Record::from_line("x").seed(1, 0), Record::from_line("x").seed(1, 1));
}

#[test]
fn a_record_overrides_the_command_setting_by_setting() {
    let command = TurnOptions { max_tokens: Some(9), thinking: Some(true), ..TurnOptions::default() };
    let mut record = Record::from_line("x");
    record.options.max_tokens = Some(3);
    let options = record.options(&command);
    assert_eq!((options.max_tokens, options.thinking), (Some(3), Some(true)));
}

#[test]
fn relative_pictures_begin_beside_their_input_and_take_the_commands_detail() {
    use crate::chat::PictureSource;
    let line = r#"{"messages":[
        {"role":"user","content":[{"type":"image_url","image_url":{"url":"a.png","detail":"high"}}]},
        {"role":"assistant","content":"a cat"},
        {"role":"user","content":[{"type":"image","image":"/abs/b.png"},{"type":"text","text":"and this?"}]}]}"#;
    let mut record = read(line.replace('\n', "").as_bytes(), None).remove(0).unwrap();
    record.resolve_pictures(Path::new("questions"));
    record.set_detail(Detail::Low);
    let pictures: Vec<(PictureSource, Detail)> = record
        .messages_mut()
        .flat_map(Message::pictures_mut)
        .map(|picture| (picture.source.clone(), picture.detail))
        .collect();
    assert_eq!(
        pictures,
        [
            (PictureSource::File("questions/a.png".into()), Detail::High),
            (PictureSource::File("/abs/b.png".into()), Detail::Low),
        ]
    );
    let mut record = read(br#"{"prompt":"p","images":["sub/c.png"]}"#, None).remove(0).unwrap();
    record.resolve_pictures(Path::new("dir"));
    let first = record.question.pictures().next().unwrap();
    assert_eq!(first.source, PictureSource::File("dir/sub/c.png".into()));
}

#[test]
fn a_slip_of_a_key_is_an_error_and_a_key_of_another_program_is_passed_over() {
    for (slip, meant) in
        [("promt", "prompt"), ("imagse", "images"), ("Schema", "schema"), ("messagess", "messages")]
    {
        let why = why(&format!(r#"{{"prompt":"a","{slip}":"b"}}"#));
        assert!(why.contains(&format!("did you mean {meant:?}?")), "{why}");
    }
    let record = read(br#"{"prompt":"a","label":"spam","line":3}"#, None).remove(0).unwrap();
    assert_eq!(record.unknown, ["label", "line"]);
}

#[test]
fn nul_csv_and_whole_inputs_are_cut_where_their_forms_say() {
    let texts = |bytes: &[u8], form| -> Vec<String> {
        let records = read(bytes, Some(form)).into_iter();
        records.map(|record| record.unwrap().question.plain_text()).collect()
    };
    assert_eq!(texts(b"a\nb\0c\0\0", InputForm::Nul), ["a\nb", "c"]);
    assert_eq!(texts(b"\xef\xbb\xbfa\nb\n", InputForm::Whole), ["a\nb"]);
    assert_eq!(texts(b" \n", InputForm::Whole), [] as [&str; 0]);
    let rows = read(b"id,prompt,lang\n1,\"two\nlines\",de\n2,too few\n3,c,fr\n", Some(InputForm::Csv));
    assert_eq!(rows.len(), 3);
    let first = rows[0].as_ref().unwrap();
    assert_eq!((first.id.clone(), first.question.plain_text()), (Some(json!("1")), "two\nlines".into()));
    assert_eq!(first.vars["lang"], "de");
    assert_eq!(
        rows[1].as_ref().unwrap_err().to_string(),
        "line 4: it has 2 cells, and the first row names 3"
    );
    assert!(rows[2].is_ok());
}

#[test]
fn a_row_that_never_ends_costs_no_more_than_the_limit() {
    let mut bytes = b"prompt\n\"".to_vec();
    bytes.resize(MAX_RECORD_BYTES + (1 << 20), b'x');
    let rows = read(&bytes, Some(InputForm::Csv));
    assert_eq!(rows.len(), 1);
    assert!(rows[0].as_ref().unwrap_err().why.contains("longer than 16 MiB"));
}

#[test]
fn lines_of_openai_batch_files_are_requests() {
    let line = r#"{"custom_id":"r1","method":"POST","url":"/v1/chat/completions","body":{"model":"m","max_tokens":5,
        "messages":[{"role":"system","content":"s"},{"role":"user","content":"q"}],"temperature":0}}"#;
    let record = read(line.replace('\n', "").as_bytes(), None).remove(0).unwrap();
    assert_eq!((record.shape, record.id), (Shape::OpenAi, Some(json!("r1"))));
    assert_eq!((record.earlier.len(), record.options.max_tokens), (1, Some(5)));
    let other = r#"{"custom_id":"r2","url":"/v1/embeddings","body":{}}"#;
    let bad = read(other.as_bytes(), None).remove(0).unwrap_err();
    assert_eq!(bad.id, Some(json!("r2")));
    assert!(bad.why.contains("only /v1/chat/completions"), "{bad}");
}

#[test]
fn the_same_text_has_the_same_key_and_parts_are_told_apart() {
    assert_eq!(key_of(&[b"ab"]), key_of(&[b"ab"]));
    assert_ne!(key_of(&[b"ab", b"c"]), key_of(&[b"a", b"bc"]));
}

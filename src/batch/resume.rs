//! What an earlier run of a batch has left in its output file: which records are answered, and where a killed program
//! stopped in the middle of a line.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// An answer of an earlier run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub is_failed: bool,
    /// Of records in a conversation, which goes on with them.
    pub said: Option<(String, Option<String>)>,
}

/// The answers of earlier runs, by the keys of their records.
#[derive(Debug, Default)]
pub struct Earlier {
    path: PathBuf,
    answers: HashMap<String, VecDeque<Kept>>,
    /// Of the settings of each answer.
    runs: Vec<String>,
    /// Where the whole lines end.
    end: u64,
    /// Beginning and length of the lines that have failed.
    failed: Vec<(u64, u64)>,
}

impl Earlier {
    /// Reads the output of an earlier run; there may be none. The file is left as it is.
    ///
    /// # Errors
    /// A sentence, if it is no output of a batch.
    pub fn read(path: &Path) -> Result<Self, String> {
        let mut earlier = Self { path: path.to_owned(), ..Self::default() };
        let cannot = |error: io::Error| format!("cannot read {}: {error}", path.display());
        let mut reader = match File::open(path) {
            Ok(file) => BufReader::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(earlier),
            Err(error) => return Err(cannot(error)),
        };
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            line.clear();
            number += 1;
            let n = reader.read_until(b'\n', &mut line).map_err(cannot)?;
            if n == 0 {
                return Ok(earlier);
            }
            let is_last = reader.fill_buf().map_err(cannot)?.is_empty();
            // Only a line of ours is dropped because it is torn; after a power cut its bytes may be zero.
            let may_be_torn = is_last && (!earlier.runs.is_empty() || matches!(line[0], b'{' | 0));
            let note = if line.last() == Some(&b'\n') { earlier.note(&line) } else { None };
            match note {
                Some(()) => earlier.end += n as u64,
                None if may_be_torn => return Ok(earlier),
                None => {
                    let name = path.display();
                    return Err(format!(
                        "line {number} of {name} is no answer of a batch with --out jsonl; --resume can't go on there"
                    ));
                }
            }
        }
    }

    fn note(&mut self, line: &[u8]) -> Option<()> {
        let json: Value = serde_json::from_slice(line).ok()?;
        let key = json["key"].as_str()?;
        let is_failed = match json["status"].as_str() {
            Some(status) => status != "ok" && status != "length",
            None => !json["error"].is_null(),
        };
        let said = json.get("conv").map(|_| {
            let text = json["text"].as_str().unwrap_or_default().to_owned();
            (text, json["thinking"].as_str().map(str::to_owned))
        });
        if is_failed {
            self.failed.push((self.end, line.len() as u64));
        }
        self.runs.push(json["run"].as_str()?.to_owned());
        self.answers.entry(key.to_owned()).or_default().push_back(Kept { is_failed, said });
        Some(())
    }

    /// Whether all of it was made with these settings.
    pub fn is_of(&self, run: &str) -> bool {
        self.runs.iter().all(|other| other == run)
    }

    /// Opens the file to go on behind its last whole line. With `retry`, the answers of records that are tried again
    /// are taken out first, so that no record has two.
    ///
    /// # Errors
    /// A sentence, if it can't be written.
    pub fn go_on(&mut self, retry: bool) -> Result<File, String> {
        let path = self.path.clone();
        let cannot = |error: io::Error| format!("cannot write {}: {error}", path.display());
        if retry && !self.failed.is_empty() {
            self.take_out_failed().map_err(cannot)?;
            for answers in self.answers.values_mut() {
                answers.retain(|kept| !kept.is_failed);
            }
        }
        let file = OpenOptions::new().append(true).create(true).open(&path).map_err(cannot)?;
        if file.metadata().map_err(cannot)?.len() > self.end {
            file.set_len(self.end).map_err(cannot)?;
        }
        Ok(file)
    }

    /// By way of a new file that takes the place of the old one when it is complete.
    fn take_out_failed(&mut self) -> io::Result<()> {
        let bytes = fs::read(&self.path)?;
        let mut name = self.path.clone().into_os_string();
        name.push(".new");
        let mut file = File::create(&name)?;
        let mut from = 0;
        for (start, len) in &self.failed {
            file.write_all(&bytes[from..*start as usize])?;
            from = (start + len) as usize;
        }
        file.write_all(&bytes[from..self.end as usize])?;
        file.sync_all()?;
        fs::rename(&name, &self.path)?;
        self.end -= self.failed.iter().map(|(_, len)| len).sum::<u64>();
        Ok(())
    }

    /// The answer to a record, if there is one. Records that are alike have one each.
    pub fn take(&mut self, key: &str) -> Option<Kept> {
        self.answers.get_mut(key)?.pop_front()
    }

    /// Answers that no record has asked for.
    pub fn n_left(&self) -> usize {
        self.answers.values().map(VecDeque::len).sum()
    }
}

/// What differs between the settings of two runs, by name.
pub fn differences(before: &Value, now: &Value) -> Vec<String> {
    let names = now.as_object().into_iter().flat_map(|now| now.keys());
    let differing = names.filter(|name| before[name.as_str()] != now[name.as_str()]);
    differing.map(|name| format!("{name}: {} -> {}", before[name.as_str()], now[name.as_str()])).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(key: &str, status: &str) -> String {
        format!("{}\n", json!({"key": key, "run": "r", "status": status, "text": "t"}))
    }

    fn earlier(content: &str) -> (tempfile::TempDir, Result<Earlier, String>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.jsonl");
        fs::write(&path, content).unwrap();
        (dir, Earlier::read(&path))
    }

    #[test]
    fn a_torn_line_is_dropped_wherever_it_was_torn() {
        let (first, second) = (line("a", "ok"), line("b", "length"));
        for cut in 0..second.len() {
            let (dir, found) = earlier(&format!("{first}{}", &second[..cut]));
            let mut found = found.unwrap();
            drop(found.go_on(false).unwrap());
            assert_eq!(fs::read_to_string(dir.path().join("out.jsonl")).unwrap(), first, "cut at {cut}");
            assert!(found.take("a").is_some() && found.take("b").is_none());
        }
    }

    #[test]
    fn failed_records_are_taken_out_only_when_they_are_tried_again() {
        let content = [line("a", "error"), line("b", "ok"), line("c", "error"), "{\"torn".into()].concat();
        for retry in [false, true] {
            let (dir, found) = earlier(&content);
            let mut found = found.unwrap();
            let mut file = found.go_on(retry).unwrap();
            file.write_all(b"new\n").unwrap();
            let expected = match retry {
                true => format!("{}new\n", line("b", "ok")),
                false => format!("{}{}{}new\n", line("a", "error"), line("b", "ok"), line("c", "error")),
            };
            assert_eq!(fs::read_to_string(dir.path().join("out.jsonl")).unwrap(), expected);
            assert_eq!((found.take("a").is_some(), found.take("b").is_some()), (!retry, true));
        }
    }

    #[test]
    fn records_that_are_alike_have_an_answer_each() {
        let (_dir, found) = earlier(&[line("a", "ok"), line("a", "ok")].concat());
        let mut found = found.unwrap();
        assert!(found.take("a").is_some() && found.take("a").is_some() && found.take("a").is_none());
    }

    #[test]
    fn a_file_of_something_else_is_refused() {
        let (_dir, found) = earlier("my diary\nchapter 1\n");
        assert!(found.unwrap_err().contains("line 1 of"));
        for other in ["my diary\n", "my diary", "{}\n{}\n"] {
            let (_dir, found) = earlier(other);
            assert!(found.unwrap_err().contains("line 1 of"), "{other}");
        }
        let (_dir, found) = earlier("");
        assert_eq!(found.unwrap().n_left(), 0);
    }

    #[test]
    fn differences_are_named() {
        let differ = differences(&json!({"a": 1, "b": 2}), &json!({"a": 1, "b": 3, "c": "x"}));
        assert_eq!(differ, ["b: 2 -> 3", "c: null -> \"x\""]);
    }
}

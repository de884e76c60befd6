//! Where records come from, and how a stream of bytes is cut into them.
//!
//! A piece that can't be read becomes a [`BadRecord`] in its place; those after it are read all the same.

use std::cell::Cell;
use std::fs::File;
#[cfg(unix)]
use std::fs::Metadata;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use reqwest::Client;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::fetch;
use super::record::{BadRecord, MAX_RECORD_BYTES, Record, key_of};
use crate::chat::{Message, PictureSource};
use crate::cli::{BatchArgs, InputForm, ReadAs};
use crate::msg::{ErrorCode, TurnError};

/// One input, and the folder where its relative paths begin: a file's own, or the working folder.
struct Input {
    reader: Box<dyn BufRead + Send>,
    folder: PathBuf,
}

/// Where records come from, opened but not read.
pub struct Source {
    inputs: Vec<Input>,
    form: Option<InputForm>,
    read_as: ReadAs,
    /// Fetches pictures from the network, if that is allowed.
    client: Option<Client>,
}

impl Source {
    /// Opens every file before the first is answered, so that a wrong name doesn't show after an hour.
    ///
    /// # Errors
    /// A sentence for a file that can't be opened.
    pub fn open(args: &BatchArgs) -> Result<Self, String> {
        let form = if args.read.null { Some(InputForm::Nul) } else { args.read.input_form };
        let read_as = args.read.read_as;
        if read_as == ReadAs::Image && !matches!(form, None | Some(InputForm::Lines | InputForm::Nul)) {
            return Err("--as image is for --in lines and nul; other forms name pictures themselves".into());
        }
        let mut inputs = Vec::new();
        for path in &args.inputs {
            let file =
                File::open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))?;
            if file.metadata().is_ok_and(|meta| meta.is_dir()) {
                return Err(format!("cannot read {}: it is a folder", path.display()));
            }
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            inputs.push(Input { reader: Box::new(BufReader::new(file)), folder });
        }
        if inputs.is_empty() {
            let reader = Box::new(BufReader::new(io::stdin()));
            inputs.push(Input { reader, folder: PathBuf::new() });
        }
        // A name is never taken for JSON.
        let form = form.or((read_as == ReadAs::Image).then_some(InputForm::Lines));
        let client = args.read.allow_net.then(fetch::client).transpose();
        let client = client.map_err(|error| format!("no picture can be fetched: {error}"))?;
        Ok(Self { inputs, form, read_as, client })
    }

    /// Reads on a thread of its own, a few records ahead. The thread isn't waited for: it may hang on an
    /// input that never ends.
    pub fn read_in_background(self) -> mpsc::Receiver<Item> {
        let (sender, receiver) = mpsc::channel(4);
        let runtime = Handle::current();
        std::thread::spawn(move || {
            for Input { reader, folder } in self.inputs {
                let mut form = self.form;
                let take = |mut item: Item| {
                    if let Ok(record) = &mut item.record {
                        record.resolve_pictures(&folder);
                        if let Err(error) = runtime.block_on(fetch_all(self.client.as_ref(), record)) {
                            let TurnError { code, message } = error;
                            let id = record.id.clone();
                            item.record = Err(BadRecord { line: item.line, why: message, code, id });
                        }
                    }
                    sender.blocking_send(item).is_ok()
                };
                if read_records(reader, &mut form, self.read_as, take).is_none() {
                    return;
                }
            }
        });
        receiver
    }
}

/// # Errors
/// About a picture that can't be fetched, or may not be.
async fn fetch_all(client: Option<&Client>, record: &mut Record) -> Result<(), TurnError> {
    for picture in record.messages_mut().flat_map(Message::pictures_mut) {
        if let PictureSource::Address(address) = &picture.source {
            let client = client.ok_or_else(|| TurnError {
                code: ErrorCode::BadRecord,
                message: "pictures are not fetched from the network without --allow-net".into(),
            })?;
            picture.source = fetch::fetch(client, address).await?;
        }
    }
    Ok(())
}

/// Whether `output` is one of the inputs, under whatever name.
pub fn reads_from(inputs: &[PathBuf], output: &Path) -> bool {
    let Ok(output_meta) = output.metadata() else { return false };
    if !output_meta.is_file() {
        return false;
    }
    // By device and file number, which also sees through links and redirections.
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;
        use std::os::unix::fs::MetadataExt;
        let is_output = |meta: Metadata| (meta.dev(), meta.ino()) == (output_meta.dev(), output_meta.ino());
        let stdin = io::stdin().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
        match inputs {
            [] => stdin.is_ok_and(is_output),
            _ => inputs.iter().any(|input| input.metadata().is_ok_and(is_output)),
        }
    }
    #[cfg(not(unix))]
    inputs.iter().any(|input| match (input.canonicalize(), output.canonicalize()) {
        (Ok(input), Ok(output)) => input == output,
        _ => false,
    })
}

/// What was read for one record.
pub struct Item {
    /// Where it begins.
    pub line: usize,
    /// `None` as long as nothing readable told what the form is.
    pub form: Option<InputForm>,
    /// The same for the same bytes.
    pub key: String,
    pub record: Result<Record, BadRecord>,
}

/// Gives every record of `reader` to `take`, until that says no (`None`). The first readable line decides
/// the form if it is not given.
pub(super) fn read_records(
    mut reader: impl BufRead,
    form: &mut Option<InputForm>,
    read_as: ReadAs,
    mut take: impl FnMut(Item) -> bool,
) -> Option<()> {
    match form {
        Some(InputForm::Csv) => return read_rows(reader, take),
        Some(InputForm::Whole) => return read_whole(reader, take),
        None | Some(InputForm::Lines | InputForm::Jsonl | InputForm::Nul) => {}
    }
    let end = if *form == Some(InputForm::Nul) { 0 } else { b'\n' };
    let mut line = 0;
    loop {
        line += 1;
        let bad = |why: String| Err(BadRecord::new(line, why));
        let bytes = match next_piece(&mut reader, end) {
            Ok(None) => return Some(()),
            Ok(Some(bytes)) => bytes,
            Err(error) => {
                take(item(line, *form, &[], bad(format!("cannot read the input: {error}")))).then_some(())?;
                return Some(());
            }
        };
        let record = match text_of(&bytes) {
            Err(why) => bad(why),
            Ok(text) => {
                let text = if line == 1 { text.trim_start_matches('\u{feff}') } else { text };
                if text.trim().is_empty() {
                    continue;
                }
                match (form.get_or_insert_with(|| guess(text)), read_as) {
                    (InputForm::Jsonl, _) => Record::from_json(text, line),
                    (_, ReadAs::Text) => Ok(Record::from_line(text)),
                    (_, ReadAs::Image) => Record::from_picture(text).or_else(bad),
                }
            }
        };
        take(item(line, *form, &bytes, record)).then_some(())?;
    }
}

fn item(line: usize, form: Option<InputForm>, bytes: &[u8], record: Result<Record, BadRecord>) -> Item {
    Item { line, form, key: key_of(&[bytes]), record }
}

/// # Errors
/// A sentence, for what is too long or no text.
fn text_of(bytes: &[u8]) -> Result<&str, String> {
    if bytes.len() > MAX_RECORD_BYTES {
        return Err(format!("it is longer than {} MiB", MAX_RECORD_BYTES >> 20));
    }
    std::str::from_utf8(bytes).map_err(|_| "it is not valid UTF-8".into())
}

fn read_whole(reader: impl BufRead, mut take: impl FnMut(Item) -> bool) -> Option<()> {
    let bad = |why: String| BadRecord::new(1, why);
    let mut bytes = Vec::new();
    let read = reader.take(MAX_RECORD_BYTES as u64 + 1).read_to_end(&mut bytes);
    let read = read.map_err(|error| bad(format!("cannot read the input: {error}")));
    let record =
        read.and_then(|_| text_of(&bytes).map_err(bad)).map(|text| text.trim_start_matches('\u{feff}'));
    let record = match record {
        Ok(text) if text.trim().is_empty() => return Some(()),
        other => other.map(|text| Record::from_line(text.trim_end())),
    };
    take(item(1, Some(InputForm::Whole), &bytes, record)).then_some(())
}

/// Ends a row that would never end, such as one with a quote that nothing closes.
struct Bounded<R> {
    inner: R,
    /// Bytes that the row may still have.
    left: Rc<Cell<usize>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        match self.left.get().checked_sub(n) {
            Some(left) => self.left.set(left),
            None => {
                return Err(io::Error::other(format!("a row is longer than {} MiB", MAX_RECORD_BYTES >> 20)));
            }
        }
        Ok(n)
    }
}

fn read_rows(reader: impl BufRead, mut take: impl FnMut(Item) -> bool) -> Option<()> {
    let form = Some(InputForm::Csv);
    let left = Rc::new(Cell::new(MAX_RECORD_BYTES));
    let mut rows = csv::Reader::from_reader(Bounded { inner: reader, left: left.clone() });
    let line_of = |error: &csv::Error| error.position().map_or(1, |at| at.line() as usize);
    let bad = |error: &csv::Error| BadRecord::new(line_of(error), csv_reason(error));
    let header = match rows.headers() {
        Ok(header) => header.clone(),
        Err(error) => {
            take(item(1, form, &[], Err(bad(&error)))).then_some(())?;
            return Some(());
        }
    };
    let mut row = csv::StringRecord::new();
    loop {
        left.set(MAX_RECORD_BYTES);
        let read = rows.read_record(&mut row);
        let line = row.position().map_or(1, |at| at.line() as usize);
        match read {
            Ok(false) => return Some(()),
            Ok(true) => {
                let record = Record::from_row(&header, &row).map_err(|why| BadRecord::new(line, why));
                let cells: Vec<&[u8]> = row.iter().map(str::as_bytes).collect();
                take(Item { line, form, key: key_of(&cells), record }).then_some(())?;
            }
            Err(error) => {
                take(item(line, form, &[], Err(bad(&error)))).then_some(())?;
                if matches!(error.kind(), csv::ErrorKind::Io(_)) {
                    return Some(());
                }
            }
        }
    }
}

fn csv_reason(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("it has {len} cells, and the first row names {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "it is not valid UTF-8".into(),
        csv::ErrorKind::Io(error) => format!("cannot read the input: {error}"),
        _ => error.to_string(),
    }
}

/// The next line, or what else ends with `end`, without its end; `None` at the end of the input. Of a line that is too long, one byte more
/// than allowed comes back and the rest is skipped.
fn next_piece(reader: &mut impl BufRead, end: u8) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let limit = MAX_RECORD_BYTES as u64 + 1;
    if reader.by_ref().take(limit).read_until(end, &mut bytes)? == 0 {
        return Ok(None);
    }
    if bytes.last() == Some(&end) {
        bytes.pop();
    } else if bytes.len() as u64 == limit {
        reader.skip_until(end)?;
        return Ok(Some(bytes));
    }
    if end == b'\n' && bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    Ok(Some(bytes))
}

fn guess(first_line: &str) -> InputForm {
    match first_line.trim_start().starts_with('{') {
        true => InputForm::Jsonl,
        false => InputForm::Lines,
    }
}

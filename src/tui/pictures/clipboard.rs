//! What the clipboard holds: a picture, files, or text. Text is put there, too.
//!
//! The system's clipboard is opened for one reading and closed again. Inside WSL it is the one of Windows,
//! which PowerShell reads for us.

use std::io::{Cursor, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use image::{ExtendedColorType, ImageEncoder};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clip {
    /// A picture file's content.
    Picture(Arc<[u8]>),
    Files(Vec<PathBuf>),
    Text(String),
    Empty,
}

/// Starting PowerShell takes seconds on a busy machine.
const POWERSHELL_TIME: Duration = Duration::from_secs(15);

/// By its name, and by its place when Windows' folders aren't on the path of WSL.
const POWERSHELL: [&str; 2] =
    ["powershell.exe", "/mnt/c/Windows/System32/WindowsPowerShell/v1.0/powershell.exe"];

/// Writes the picture as Base64 of a PNG file, so that no console code page can touch it.
const POWERSHELL_SCRIPT: &str = "Add-Type -AssemblyName System.Windows.Forms,System.Drawing; \
    $i = [Windows.Forms.Clipboard]::GetImage(); \
    if ($i) { $m = New-Object IO.MemoryStream; $i.Save($m, [Drawing.Imaging.ImageFormat]::Png); \
    'PNG ' + [Convert]::ToBase64String($m.ToArray()) } \
    elseif ([Windows.Forms.Clipboard]::ContainsText()) { 'TXT ' + [Convert]::ToBase64String(\
    [Text.Encoding]::UTF8.GetBytes([Windows.Forms.Clipboard]::GetText())) }";

/// # Errors
/// A sentence when there is no clipboard to read.
pub fn read() -> Result<Clip, String> {
    if is_wsl() {
        return read_by_powershell();
    }
    let mut clipboard = arboard::Clipboard::new().map_err(|error| unreachable_because(&error))?;
    if let Ok(picture) = clipboard.get_image() {
        return png(&picture).map(|bytes| Clip::Picture(bytes.into()));
    }
    if let Ok(files) = clipboard.get().file_list()
        && !files.is_empty()
    {
        return Ok(Clip::Files(files));
    }
    match clipboard.get_text() {
        Ok(text) if !text.is_empty() => Ok(Clip::Text(text)),
        Ok(_) | Err(arboard::Error::ContentNotAvailable) => Ok(Clip::Empty),
        Err(error) => Err(unreachable_because(&error)),
    }
}

/// Puts a text there. Where that fails the terminal may still have done it.
pub fn write(text: String) {
    if is_wsl() {
        write_by_windows(&text);
        return;
    }
    // On X11 and Wayland the text is there as long as somebody serves it, so the clipboard stays open.
    static SERVED: Mutex<Option<arboard::Clipboard>> = Mutex::new(None);
    let mut served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    if served.is_none() {
        *served = arboard::Clipboard::new().ok();
    }
    if let Some(clipboard) = served.as_mut()
        && clipboard.set_text(text).is_err()
    {
        *served = None;
    }
}

/// `clip.exe` takes UTF-16.
fn write_by_windows(text: &str) {
    for program in ["clip.exe", "/mnt/c/Windows/System32/clip.exe"] {
        let started =
            Command::new(program).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(mut child) = started else { continue };
        let bytes: Vec<u8> =
            "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        if let Some(mut stdin) = child.stdin.take() {
            let _ = stdin.write_all(&bytes);
        }
        let _ = child.wait();
        return;
    }
}

fn unreachable_because(error: &arboard::Error) -> String {
    let no_display = cfg!(target_os = "linux")
        && ["DISPLAY", "WAYLAND_DISPLAY"].iter().all(|name| std::env::var_os(name).is_none());
    match no_display {
        // Over SSH the clipboard is the other machine's.
        true => "There is no clipboard here (no display); /image FILE attaches a file".into(),
        false => format!("The clipboard can't be read: {error}"),
    }
}

fn png(picture: &arboard::ImageData) -> Result<Vec<u8>, String> {
    let mut bytes = Cursor::new(Vec::new());
    let size = |n: usize| u32::try_from(n).map_err(|_| "The picture in the clipboard is too large");
    image::codecs::png::PngEncoder::new(&mut bytes)
        .write_image(&picture.bytes, size(picture.width)?, size(picture.height)?, ExtendedColorType::Rgba8)
        .map_err(|error| format!("The picture in the clipboard can't be used: {error}"))?;
    Ok(bytes.into_inner())
}

fn is_wsl() -> bool {
    cfg!(target_os = "linux")
        && (std::env::var_os("WSL_DISTRO_NAME").is_some() || std::env::var_os("WSL_INTEROP").is_some())
}

fn read_by_powershell() -> Result<Clip, String> {
    for program in POWERSHELL {
        let started = Command::new(program)
            .args(["-NoProfile", "-NonInteractive", "-Sta", "-Command", POWERSHELL_SCRIPT])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        if let Ok(child) = started {
            return powershell_answer(&output_in_time(child, POWERSHELL_TIME)?);
        }
    }
    Err("Windows' clipboard can't be read: PowerShell wasn't found".into())
}

/// What it writes, or an end to it when it takes too long.
fn output_in_time(mut child: Child, patience: Duration) -> Result<String, String> {
    let (sender, receiver) = mpsc::channel();
    let mut stdout = child.stdout.take().ok_or("PowerShell says nothing")?;
    std::thread::spawn(move || {
        let mut output = String::new();
        let read = stdout.read_to_string(&mut output);
        let _ = sender.send(read.map(|_| output));
    });
    let output = receiver.recv_timeout(patience);
    let _ = child.kill();
    let _ = child.wait();
    match output {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(_)) | Err(_) => Err("Windows' clipboard didn't answer".into()),
    }
}

fn powershell_answer(output: &str) -> Result<Clip, String> {
    let output = output.trim();
    let decoded = |text: &str| {
        BASE64_STANDARD.decode(text.trim()).map_err(|_| "Windows' clipboard can't be read: PowerShell failed")
    };
    if let Some(picture) = output.strip_prefix("PNG ") {
        Ok(Clip::Picture(decoded(picture)?.into()))
    } else if let Some(text) = output.strip_prefix("TXT ") {
        Ok(Clip::Text(String::from_utf8_lossy(&decoded(text)?).into_owned()))
    } else {
        Ok(Clip::Empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_powershell_says_is_understood() {
        assert_eq!(powershell_answer("PNG iVA=\r\n"), Ok(Clip::Picture(vec![0x89, 0x50].into())));
        assert_eq!(powershell_answer("TXT aMOp\r\n"), Ok(Clip::Text("hé".into())));
        assert_eq!(powershell_answer("\r\n"), Ok(Clip::Empty));
        assert!(powershell_answer("PNG ???").is_err());
    }

    #[test]
    fn the_pixels_of_a_clipboard_become_a_png_file() {
        let picture =
            arboard::ImageData { width: 1, height: 2, bytes: vec![1, 2, 3, 255, 4, 5, 6, 128].into() };
        let decoded = image::load_from_memory(&png(&picture).unwrap()).unwrap().to_rgba8();
        assert_eq!((decoded.dimensions(), decoded.into_raw()), ((1, 2), vec![1, 2, 3, 255, 4, 5, 6, 128]));
    }

    #[test]
    #[cfg(unix)]
    fn a_program_that_never_ends_is_ended() {
        let start = |script| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
        };
        let soon = Duration::from_millis(200);
        assert_eq!(output_in_time(start("echo TXT aGk="), POWERSHELL_TIME).as_deref(), Ok("TXT aGk=\n"));
        assert!(output_in_time(start("exec sleep 600"), soon).unwrap_err().contains("didn't answer"));
    }
}

//! Downloads against a Hub that breaks in every way it knows: the right file, or one clear error, never a wrong one.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use loquat::hub::api::Listing;
use loquat::hub::cache::Installed;
use loquat::hub::names::ModelRef;
use loquat::hub::options::{HubOptions, Pace, Token};
use loquat::hub::pull::{Notice, Reporter};
use loquat::hub::{Hub, HubError};
use tempfile::TempDir;

use crate::support::{FakeHub, TOKEN, noise, write, write_repo};

const MIB: usize = 1 << 20;

/// As patient as the real one, with short waits.
fn quick() -> Pace {
    Pace {
        stall: Duration::from_millis(800),
        backoff: Duration::from_millis(1),
        max_wait: Duration::from_secs(10),
        tries: 4,
        range_bytes: MIB as u32,
        at_once: 3,
        lock_poll: Duration::from_millis(10),
        ..Pace::default()
    }
}

struct Place {
    hub: Hub,
    cache: TempDir,
    notices: Arc<Mutex<Vec<Notice>>>,
}

impl Place {
    fn new(fake: &FakeHub) -> Self {
        Self::with(fake, |_| {})
    }

    fn with(fake: &FakeHub, change: impl FnOnce(&mut HubOptions)) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let mut options = HubOptions {
            cache: Some(cache.path().to_owned()),
            endpoint: fake.endpoint.parse().unwrap(),
            token: Token::new(TOKEN),
            offline: false,
            pace: quick(),
        };
        change(&mut options);
        Self { hub: Hub::new(options).unwrap(), cache, notices: Arc::default() }
    }

    fn pull(&self, model: &str) -> Result<Installed, HubError> {
        let notices = self.notices.clone();
        let reporter = Reporter::new(move |notice| notices.lock().unwrap().push(notice));
        let model = ModelRef::parse(model).unwrap();
        run(self.hub.pull(&model, &reporter))
    }

    fn listing(&self, model: &str) -> Result<Listing, HubError> {
        let model = ModelRef::parse(model).unwrap();
        run(self.hub.listing(&model.id, &model.revision))
    }

    /// Every file below the cache, by its path from there.
    fn files(&self) -> Vec<String> {
        let mut names = Vec::new();
        list(self.cache.path(), self.cache.path(), &mut names);
        names.sort();
        names
    }

    /// Whatever has the name of a blob has its content.
    fn assert_no_wrong_blob(&self) {
        let cache = self.hub.cache().unwrap();
        for entry in fs::read_dir(self.cache.path()).into_iter().flatten().flatten() {
            let Some(id) = loquat::hub::names::RepoId::of_folder(entry.file_name().to_str().unwrap()) else {
                continue;
            };
            for blob in cache.verify(&id, |_, _| {}).unwrap() {
                assert!(blob.is_right, "{} is wrong", blob.name);
            }
        }
    }
}

fn list(root: &Path, folder: &Path, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(root, &path, names);
        } else {
            names.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(work)
}

/// What was fetched is what is served.
fn assert_same(fake: &FakeHub, id: &str, snapshot: &Path, names: &[&str]) {
    for name in names {
        let [served, fetched] = [fake.root.path().join(id).join(name), snapshot.join(name)];
        assert!(fs::read(served).unwrap() == fs::read(fetched).unwrap(), "{name} differs");
    }
}

const SHARDS: [&str; 2] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];

fn sharded(root: &Path) {
    write_repo(root, "fake/sharded", &[(SHARDS[0], noise(3 * MIB + 17, 1)), (SHARDS[1], noise(MIB / 2, 2))]);
}

fn single(root: &Path) {
    write_repo(root, "fake/big", &[("model.safetensors", noise(4 * MIB + 4321, 3))]);
}

#[test]
fn a_sharded_model_arrives_byte_for_byte_over_every_route() {
    for options in [&[][..], &["--direct"], &["--xet"], &["--resolve-cache", "--page-size", "2"]] {
        let fake = FakeHub::start(options, sharded);
        let place = Place::new(&fake);
        let model = place.pull("fake/sharded").unwrap();
        let names = [SHARDS[0], SHARDS[1], "config.json", "tokenizer.json", "model.safetensors.index.json"];
        assert_same(&fake, "fake/sharded", &model.path, &names);
        assert_eq!(model.revision.as_deref(), Some("main"));
        assert_eq!(
            fs::read_dir(&model.path).unwrap().count(),
            names.len(),
            "only what is needed was fetched"
        );
        assert!(!place.files().iter().any(|name| name.contains(".loquat")), "{:?}", place.files());
        fake.assert_discreet();

        // What is here is not fetched again, and by its commit it is found without asking.
        fake.reset();
        place.pull("fake/sharded").unwrap();
        assert!(fake.log().iter().all(|request| request["route"] == "info" || request["route"] == "tree"));
        let pinned = ModelRef::parse(&format!("fake/sharded@{}", model.commit)).unwrap();
        assert_eq!(place.hub.cache().unwrap().find(&pinned).unwrap().path, model.path);
    }
}

#[test]
fn a_broken_body_is_gone_on_with_from_where_it_broke() {
    let fake = FakeHub::start(&[], single);
    let size = fs::metadata(fake.root.path().join("fake/big/model.safetensors")).unwrap().len();
    for cut in [1, 4096, 700_000, MIB - 1] {
        for reset in ["", ",reset"] {
            let place = Place::new(&fake);
            fake.reset();
            fake.set_faults(&[&format!("route=cdn,method=GET,cut_after={cut}{reset},times=2")]);
            let model = place.pull("fake/big").unwrap();
            assert_same(&fake, "fake/big", &model.path, &["model.safetensors"]);
            // A reset throws away what was on its way.
            let again = if reset.is_empty() { 0 } else { 2 * cut as u64 };
            assert!(fake.sent() <= size + again, "{} of {size}", fake.sent());
        }
    }
}

#[test]
fn faults_that_pass_end_in_the_right_file() {
    let faults = [
        "route=cdn,method=GET,reset",
        "route=cdn,method=GET,stall_after=65536,stall_s=5",
        "route=cdn,method=GET,corrupt_at=2097153",
        "route=cdn,method=GET,corrupt_at=0,corrupt_len=9",
        "route=cdn,method=GET,ignore_range,times=-1",
        "route=cdn,method=GET,no_length,times=-1",
        "route=cdn,method=GET,chunked,times=-1",
        "route=cdn,method=GET,no_length,ignore_range,cut_after=900000,times=2",
        "route=cdn,method=GET,no_length,cut_after=900000",
        "route=resolve,method=GET,no_etag,times=-1",
        "route=resolve,method=GET,no_commit,times=-1",
        "route=resolve,method=GET,etag=../../../x,times=-1",
        "route=resolve,method=GET,size_delta=1000,times=-1",
        "route=cdn,status=401",
        "route=cdn,status=403",
        "route=cdn,status=404",
        "route=cdn,status=416",
        "route=cdn,status=429,retry_after=0",
        "route=cdn,status=500",
        "route=cdn,status=503,times=3",
        "route=resolve,path=safetensors,status=429",
        "route=resolve,path=config,status=500,times=2",
        "route=resolve,path=safetensors,status=503,retry_after=0",
        "route=resolve,path=safetensors,status=416",
        "route=resolve,path=safetensors,reset",
        "route=tree,status=500",
        "route=tree,status=429,retry_after=0",
        "route=tree,cut_after=10",
        "route=tree,reset",
        "route=info,status=503",
        "route=info,status=429,retry_after=0",
        "route=info,delay=1.5",
    ];
    let fake = FakeHub::start(&[], single);
    for fault in faults {
        let place = Place::new(&fake);
        fake.reset();
        fake.set_faults(&[fault]);
        let model = place.pull("fake/big").unwrap_or_else(|error| panic!("{fault}: {error}"));
        assert_same(&fake, "fake/big", &model.path, &["model.safetensors", "config.json"]);
        assert!(!place.files().iter().any(|name| name.contains(".loquat")), "{fault}: {:?}", place.files());
        place.assert_no_wrong_blob();
        fake.assert_discreet();
    }
}

#[test]
fn faults_that_stay_end_in_one_clear_error_and_no_wrong_file() {
    let faults = [
        ("route=cdn,status=401,times=-1", "status 401"),
        ("route=cdn,status=403,times=-1", "status 403"),
        ("route=cdn,status=404,times=-1", "status 404"),
        ("route=cdn,status=416,times=-1", "status 416"),
        ("route=cdn,status=429,times=-1", "status 429"),
        ("route=cdn,status=500,times=-1", "status 500"),
        ("route=cdn,status=503,times=-1", "status 503"),
        ("route=cdn,status=429,retry_after=3600,times=-1", "status 429"),
        ("route=cdn,method=GET,reset,times=-1", "no connection to 127.0.0.1"),
        ("route=cdn,method=GET,cut_after=0,times=-1", "no connection to 127.0.0.1"),
        ("route=cdn,method=GET,stall_after=0,stall_s=3,times=-1", "didn't answer in time"),
        ("route=cdn,method=GET,corrupt_at=5,times=-1", "model.safetensors arrived damaged twice"),
        ("route=resolve,path=safetensors,status=401,times=-1", "access token"),
        ("route=resolve,path=safetensors,status=403,times=-1", "refuses fake/big"),
        ("route=resolve,path=safetensors,status=404,times=-1", "status 404"),
        ("route=resolve,path=safetensors,status=416,times=-1", "status 416"),
        ("route=resolve,path=safetensors,status=429,times=-1", "status 429"),
        ("route=resolve,path=safetensors,status=500,times=-1", "status 500"),
        ("route=resolve,path=safetensors,status=503,times=-1", "status 503"),
        ("route=resolve,path=safetensors,status=302,location=/nowhere,times=-1", "status 404"),
        ("route=resolve,path=safetensors,status=302,times=-1", "redirects to nowhere"),
        ("route=info,status=401,times=-1", "access token"),
        ("route=info,status=403,times=-1", "refuses fake/big"),
        ("route=info,status=404,times=-1", "no revision main"),
        ("route=info,status=429,times=-1", "status 429"),
        ("route=info,status=500,times=-1", "status 500"),
        ("route=info,status=200,body=<html>,times=-1", "makes no sense"),
        ("route=tree,status=401,times=-1", "access token"),
        ("route=tree,status=404,times=-1", "status 404"),
        ("route=tree,status=416,times=-1", "status 416"),
        ("route=tree,status=503,times=-1", "status 503"),
        ("route=tree,reset,times=-1", "no connection to 127.0.0.1"),
    ];
    let fake = FakeHub::start(&[], single);
    for (fault, expected) in faults {
        let place = Place::new(&fake);
        fake.reset();
        fake.set_faults(&[fault]);
        let error = place.pull("fake/big").expect_err(fault).to_string();
        assert!(error.contains(expected), "{fault}: {error}");
        for secret in [TOKEN, "Signature", "Expires", "http://"] {
            assert!(!error.contains(secret), "{fault}: {error}");
        }
        let told = format!("{:?}", place.notices.lock().unwrap());
        assert!(!told.contains(TOKEN) && !told.contains("Signature"), "{fault}: {told}");
        place.assert_no_wrong_blob();
        assert!(!place.files().iter().any(|name| name.ends_with("model.safetensors")), "{fault}");
        fake.assert_discreet();

        // When the fault is gone the same command finishes the work.
        fake.reset();
        let model = place.pull("fake/big").unwrap();
        assert_same(&fake, "fake/big", &model.path, &["model.safetensors"]);
    }
}

#[test]
fn any_status_on_any_route_ends_in_the_right_file_or_in_an_error() {
    let fake = FakeHub::start(&["--resolve-cache"], |root| {
        write_repo(root, "fake/big", &[("model.safetensors", noise(MIB + 99, 6))]);
    });
    for route in ["info", "tree", "resolve", "resolve_cache", "cdn"] {
        for status in [401, 403, 404, 416, 429, 500, 503] {
            for times in [1, -1] {
                let fault = format!("route={route},status={status},times={times}");
                let place = Place::new(&fake);
                fake.reset();
                fake.set_faults(&[&fault]);
                match place.pull("fake/big") {
                    Ok(model) => {
                        assert_eq!(times, 1, "{fault}");
                        assert_same(&fake, "fake/big", &model.path, &["model.safetensors", "config.json"]);
                    }
                    Err(error) => {
                        let is_final = times == -1 || status <= 404;
                        assert!(is_final, "{fault}: {error}");
                        assert!(!error.to_string().contains("Signature"), "{fault}: {error}");
                    }
                }
                place.assert_no_wrong_blob();
                fake.assert_discreet();
            }
        }
    }
}

#[test]
fn a_server_is_waited_for_as_long_as_it_asks() {
    let fake = FakeHub::start(&[], single);
    fake.set_faults(&["route=cdn,status=429,retry_after=1"]);
    let place = Place::new(&fake);
    place.pull("fake/big").unwrap();
    let notices = place.notices.lock().unwrap();
    let waits: Vec<Duration> = notices
        .iter()
        .filter_map(|notice| match notice {
            Notice::Retrying { wait, .. } => Some(*wait),
            _ => None,
        })
        .collect();
    assert_eq!(waits, [Duration::from_secs(1)]);
}

#[test]
fn an_address_that_expires_is_replaced() {
    let fake = FakeHub::start(&["--url-ttl", "1", "--slow", "700000"], single);
    let place = Place::with(&fake, |options| options.pace.at_once = 1);
    let model = place.pull("fake/big").unwrap();
    assert_same(&fake, "fake/big", &model.path, &["model.safetensors"]);
    let expired = fake.log().iter().filter(|request| request["status"] == 403).count();
    assert!(expired > 0, "the addresses lived long enough; the test proves nothing");
}

#[test]
fn private_and_gated_repositories_say_what_to_do() {
    let fake = FakeHub::start(&["--token", TOKEN, "--token", "hf_other"], |root| {
        for (id, meta) in [
            ("fake/gated", format!(r#"{{"gated": "manual", "accepted": ["{TOKEN}"]}}"#)),
            ("fake/private", r#"{"private": true}"#.into()),
        ] {
            write_repo(root, id, &[("model.safetensors", noise(1000, 4))]);
            write(&root.join(id).join(".fakehub.json"), meta.as_bytes());
        }
    });
    for id in ["fake/gated", "fake/private"] {
        assert!(Place::new(&fake).pull(id).is_ok(), "{id}");
    }
    let nobody = Place::with(&fake, |options| options.token = None);
    let error = nobody.pull("fake/gated").unwrap_err().to_string();
    assert!(error.contains("https://huggingface.co/fake/gated") && error.contains("HF_TOKEN"), "{error}");
    let error = nobody.pull("fake/private").unwrap_err().to_string();
    assert!(error.contains("no model fake/private") && error.contains("private: set HF_TOKEN"), "{error}");
    let error = nobody.pull("fake/nothing").unwrap_err().to_string();
    assert!(error.contains("no model fake/nothing"), "{error}");
    let other = Place::with(&fake, |options| options.token = Token::new("hf_other"));
    let error = other.pull("fake/gated").unwrap_err().to_string();
    assert!(error.contains("accept its terms") && !error.contains("HF_TOKEN"), "{error}");
    let wrong = Place::with(&fake, |options| options.token = Token::new("hf_wrong"));
    let error = wrong.pull("fake/private").unwrap_err().to_string();
    assert!(error.contains("yours was refused"), "{error}");
    let error = Place::new(&fake).pull("fake/private@nowhere").unwrap_err().to_string();
    assert!(error.contains("no revision nowhere"), "{error}");
    fake.assert_discreet();
}

#[test]
fn names_of_a_hostile_server_stay_inside_the_cache() {
    let hostile = [
        "../../../../../escape.safetensors",
        "/tmp/loquat_abs_escape.safetensors",
        "a/../../../escape.safetensors",
        "ok\u{1b}]0;title\u{7}.safetensors",
        "..\\..\\win.safetensors",
        "CON.safetensors",
        "C:/x.safetensors",
        "nul.safetensors ",
        "..",
        "",
        ".",
    ];
    let fake = FakeHub::start(&[], |root| {
        for (i, name) in hostile.iter().enumerate() {
            let id = format!("fake/hostile{i}");
            write_repo(root, &id, &[]);
            let index = serde_json::json!({"weight_map": {"w": name}});
            write(&root.join(&id).join("model.safetensors.index.json"), index.to_string().as_bytes());
            let meta = serde_json::json!({"extra_tree": [name]});
            write(&root.join(&id).join(".fakehub.json"), meta.to_string().as_bytes());
        }
        // The commit of a repository is a part of paths too.
        write_repo(root, "fake/commit", &[("model.safetensors", noise(1000, 5))]);
        write(&root.join("fake/commit/.fakehub.json"), br#"{"sha": "../../../../escape"}"#);
    });
    for (i, name) in hostile.iter().enumerate() {
        let around = tempfile::tempdir().unwrap();
        let cache = around.path().join("a/b/c/cache");
        let place = Place::with(&fake, |options| options.cache = Some(cache.clone()));
        let error = place.pull(&format!("fake/hostile{i}")).expect_err(name).to_string();
        assert!(error.contains("not safe to write"), "{name:?}: {error}");
        assert!(!error.chars().any(char::is_control), "{error:?}");
        let mut outside = Vec::new();
        list(around.path(), around.path(), &mut outside);
        assert!(outside.iter().all(|path| path.starts_with("a/b/c/cache/")), "{outside:?}");
    }
    assert!(!Path::new("/tmp/loquat_abs_escape.safetensors").exists());
    let error = Place::new(&fake).pull("fake/commit").unwrap_err().to_string();
    assert!(error.contains("names no commit"), "{error}");
}

#[test]
fn of_two_that_want_the_same_one_fetches_and_the_other_waits() {
    let fake = FakeHub::start(&["--slow", "4000000"], single);
    let place = Place::new(&fake);
    let again = Place::with(&fake, |options| options.cache = Some(place.cache.path().to_owned()));
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| place.pull("fake/big").unwrap());
        let second = scope.spawn(|| again.pull("fake/big").unwrap());
        (first.join().unwrap(), second.join().unwrap())
    });
    assert_eq!(first.path, second.path);
    let size = fs::metadata(fake.root.path().join("fake/big/model.safetensors")).unwrap().len();
    // The server writes down a request after its last byte, which may be after we have it.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while fake.sent() < size && std::time::Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(fake.sent(), size, "it was fetched once");
    let waited = [&place, &again].map(|place| {
        place.notices.lock().unwrap().iter().any(|notice| matches!(notice, Notice::Waiting { .. }))
    });
    assert!(waited.contains(&true), "nobody said that it waits");
}

#[test]
fn a_dropped_download_keeps_what_arrived() {
    let fake = FakeHub::start(&["--slow", "2000000"], single);
    let place = Place::new(&fake);
    let model = ModelRef::parse("fake/big").unwrap();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let reporter = Reporter::new(move |notice| {
        if let Notice::Progress(progress) = notice {
            let _ = sender.send(progress.done_bytes);
        }
    });
    run(async {
        let enough = async { while receiver.recv().await.is_some_and(|bytes| bytes < MIB as u64) {} };
        tokio::select! {
            _ = place.hub.pull(&model, &reporter) => panic!("it finished before it could be stopped"),
            () = enough => {}
        }
    });
    assert!(place.files().iter().any(|name| name.ends_with(".loquat.part")), "{:?}", place.files());
    let listing = place.listing("fake/big").unwrap();
    fake.reset();
    place.pull("fake/big").unwrap();
    let size = listing.file("model.safetensors").unwrap().size;
    assert!(fake.sent() < size, "{} of {size} were fetched again", fake.sent());
}

#[test]
fn offline_nothing_is_asked_and_what_is_here_is_found() {
    let fake = FakeHub::start(&[], single);
    let place = Place::new(&fake);
    let model = place.pull("fake/big").unwrap();
    fake.reset();
    let offline = Place::with(&fake, |options| {
        options.offline = true;
        options.cache = Some(place.cache.path().to_owned());
    });
    let error = offline.pull("fake/big").unwrap_err().to_string();
    assert!(error.contains("offline"), "{error}");
    assert!(matches!(offline.listing("fake/big"), Err(HubError::Offline { .. })));
    let found = offline.hub.cache().unwrap().find(&ModelRef::parse("fake/big").unwrap());
    assert_eq!(found.unwrap().path, model.path);
    assert!(fake.log().is_empty());
}

#[test]
fn a_file_with_another_size_than_its_name_says_is_fetched_anew() {
    let fake = FakeHub::start(&[], single);
    let place = Place::new(&fake);
    let model = place.pull("fake/big").unwrap();
    // What another tool keeps when the content server sends an error page.
    let blob = fs::canonicalize(model.path.join("model.safetensors")).unwrap();
    fs::write(&blob, "<Error>Denied</Error>").unwrap();
    let model = place.pull("fake/big").unwrap();
    assert_same(&fake, "fake/big", &model.path, &["model.safetensors"]);
}

#[test]
fn a_search_finds_names() {
    let fake = FakeHub::start(&[], |root| {
        sharded(root);
        single(root);
    });
    let place = Place::new(&fake);
    let found = run(place.hub.search("shard", 10)).unwrap();
    assert_eq!(found.iter().map(|model| model.id.as_str()).collect::<Vec<_>>(), ["fake/sharded"]);
}

//! The script that benchmarks on phones, with stand-ins for cargo, adb and the phone: what it pushes, how it quotes, and
//! what it brings back. No phone has run it.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Builds a "tool" that prints its arguments as JSON; `tune` finds a wrong kernel.
const CARGO: &str = r#"#!/bin/sh
[ "$1" = ndk ] || exit 9
[ "$2" = --version ] && exit 0
mkdir -p "$CARGO_TARGET_DIR/aarch64-linux-android/release"
cat > "$CARGO_TARGET_DIR/aarch64-linux-android/release/vkdelegate" <<'TOOL'
#!/bin/sh
[ -d "$TMPDIR" ] || exit 2
for word in "$@"; do case $word in /*) [ -e "$word" ] || [ "${word##*/}" = tuned ] || exit 2 ;; esac; done
printf '{"serial": "%s", "args": "%s"}\n' "$ANDROID_SERIAL" "$*"
[ "$1" != tune ]
TOOL
"#;

/// The phone is a folder of this machine, its shell `sh`: arguments are joined as adb joins them.
const ADB: &str = r#"#!/bin/sh
command=$1
shift
case $command in
  get-state) [ "$ANDROID_SERIAL" = lost ] || echo device ;;
  push) cp "$1" "$2" ;;
  shell) exec sh -c "$*" ;;
esac
"#;

struct Bench(PathBuf);

impl Bench {
    fn new(name: &str) -> Bench {
        let folder = std::env::temp_dir().join(format!("vkdelegate-phone-{name}-{}", std::process::id()));
        let bench = Bench(folder);
        fs::create_dir_all(bench.0.join("bin")).unwrap();
        let rustup = "#!/bin/sh\necho aarch64-linux-android\n";
        for (tool, text) in [("cargo", CARGO), ("adb", ADB), ("rustup", rustup)] {
            let path = bench.0.join("bin").join(tool);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        bench
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/android/bench.sh");
        Command::new("bash")
            .arg(script)
            .args(arguments)
            .env("PATH", format!("{}:/usr/bin:/bin", self.0.join("bin").display()))
            .env("CARGO_TARGET_DIR", self.0.join("target"))
            .env("REMOTE", self.0.join("a phone's folder"))
            .env("OUT", self.0.join("out"))
            .env_remove("ANDROID_SERIAL")
            .envs([("SHAPES", "1x8x8 2x8x8"), ("DTYPES", "f32"), ("RUNS", "3"), ("COOL_DOWN_S", "0")])
            .output()
            .unwrap()
    }

    /// The document that came back as `name`.
    #[track_caller]
    fn document(&self, name: &str) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.0.join("out").join(name)).unwrap()).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

#[test]
fn linears_are_benched_on_the_only_phone() {
    let bench = Bench::new("linears");
    let ran = bench.run(&[]);
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(bench.document("devices.json")["args"], "devices --json");
    let want = |shape: &str, repeat: u32| {
        format!("bench --op linear --shape {shape} --dtype f32 --repeat {repeat} --runs 3 --json")
    };
    assert_eq!(bench.document("linear-1x8x8-f32.json")["args"], want("1x8x8", 16));
    assert_eq!(bench.document("linear-2x8x8-f32.json")["args"], want("2x8x8", 1));
}

/// Names with spaces and quotes survive both shells; a check that fails leaves its document, and fails the script.
#[test]
fn models_go_to_each_phone_with_their_inputs() {
    let bench = Bench::new("models");
    let model = bench.0.join("Ann's model.pt2");
    for file in [&model, &model.with_extension("npz")] {
        fs::write(file, "x").unwrap();
    }
    let ran = bench.run(&["-s", "one", "-s", "two", model.to_str().unwrap()]);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let phone = bench.0.join("a phone's folder");
    for serial in ["one", "two"] {
        let document = |kind: &str| bench.document(&format!("{serial}/Ann's model-{kind}.json"));
        assert_eq!(document("f32")["serial"], serial);
        let inputs = format!("--inputs {}", phone.join("inputs.npz").display());
        for kind in ["f32", "f16-tune", "f16-tuned"] {
            assert!(document(kind)["args"].as_str().unwrap().contains(&inputs), "{}", document(kind));
        }
        assert!(document("f16-tune")["args"].as_str().unwrap().starts_with("tune "));
    }
    let left: Vec<_> = fs::read_dir(phone).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["vkdelegate"]);
}

#[test]
fn what_is_missing_is_said() {
    let bench = Bench::new("missing");
    let says = |arguments: &[&str], text: &str| {
        let ran = bench.run(arguments);
        assert_eq!(ran.status.code(), Some(1), "{ran:?}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains(text), "{ran:?}");
    };
    says(&["-s", "lost"], "adb sees no phone");
    says(&["nowhere.pt2"], "cannot read nowhere.pt2");
    says(&["-x"], "usage");
    for (tool, text) in
        [("rustup", "rustup target add aarch64-linux-android"), ("cargo", "cargo install cargo-ndk")]
    {
        fs::write(bench.0.join("bin").join(tool), "#!/bin/sh\nexit 1\n").unwrap();
        says(&[], text);
    }
}

//! Starts the tool and makes files for it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value as Json;

/// What a command left behind.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// The tool with `arguments`, in the environment of the test.
pub fn tool(arguments: &[&str]) -> Ran {
    tool_with(arguments, &[])
}

/// Variables under which there is no Vulkan driver.
pub const NO_DRIVER: [(&str, &str); 3] = [
    ("VK_DRIVER_FILES", "/nonexistent.json"),
    ("VK_ICD_FILENAMES", "/nonexistent.json"),
    ("VKDELEGATE_VALIDATION", "0"),
];

/// The tool with `arguments` and further variables.
pub fn tool_with(arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_vkdelegate"))
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Ran {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Ran {
    /// Asserts that all went well, without a word on standard error.
    #[track_caller]
    pub fn passes(self) -> Ran {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{self:?}");
        self
    }

    /// Asserts that a check failed, which is no error.
    #[track_caller]
    pub fn fails(self) -> Ran {
        assert_eq!((self.code, self.stderr.as_str()), (1, ""), "{self:?}");
        self
    }

    /// Asserts an error that starts with one line that holds `text`, and nothing on standard output.
    #[track_caller]
    pub fn refuses(self, text: &str) -> Ran {
        let first = self.stderr.lines().next().unwrap_or_default();
        assert_eq!((self.code, self.stdout.as_str()), (2, ""), "{self:?}");
        assert!(first.starts_with("error: "), "{self:?}");
        assert!(self.stderr.contains(text), "`{text}` is not in {self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self
    }

    /// Asserts that the error's last line says what to do next.
    #[track_caller]
    pub fn says_what_next(self, text: &str) -> Ran {
        let last = self.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("next: ") && last.contains(text), "{self:?}");
        self
    }

    /// Standard output as the one JSON document that it must be.
    #[track_caller]
    pub fn json(&self) -> Json {
        serde_json::from_str(&self.stdout).unwrap()
    }
}

/// The file `name` of the fixtures.
pub fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    assert!(path.exists(), "{} is missing", path.display());
    path.to_str().unwrap().to_string()
}

/// A folder that goes away with the value.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("vkdelegate-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// The path of a file in the folder.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }

    /// Writes a file, and gives its path.
    pub fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

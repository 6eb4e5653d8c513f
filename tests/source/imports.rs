//! Which file imports which. A path of Rust is resolved to the file that defines what the path names: re-exports are
//! followed, so `crate::memory::View` is `src/memory/operand.rs` in every file that names it.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::{bare, tokens, word};

/// Importer and imported, by path.
pub(crate) type Imports = BTreeSet<(String, String)>;

type Path = Vec<String>;

/// The sources of a package.
pub(crate) struct Package {
    /// By module, from the root of the package.
    files: BTreeMap<Path, File>,
}

struct File {
    path: String,
    /// The names that `use` binds: the name, and the whole path.
    bound: BTreeMap<String, Path>,
    /// The modules of which `use` binds all names.
    globs: Vec<Path>,
    /// The names of items.
    items: BTreeSet<String>,
    /// Every path the file names, from the root of the package.
    named: Vec<Path>,
}

/// The module that is the file at `path` of a package whose sources are in `folder`.
fn module(folder: &str, path: &str) -> Path {
    let inside = path.strip_prefix(folder).and_then(|path| path.strip_suffix(".rs")).unwrap();
    let mut module: Path = inside.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

impl Package {
    /// The package that consists of these files, with its sources in `folder`.
    pub(crate) fn new(folder: &str, files: &[(String, String)]) -> Self {
        let modules: Vec<Path> = files.iter().map(|(path, _)| module(folder, path)).collect();
        let read = |((path, source), own): (&(String, String), &Path)| {
            let code = bare(source);
            let children = modules.iter().filter(|module| module.len() == own.len() + 1 && module.starts_with(own));
            let children = children.map(|module| module[own.len()].clone()).collect();
            (own.clone(), Reader::new(path, own.clone(), children).read(&tokens(&code)))
        };
        Self { files: files.iter().zip(&modules).map(read).collect() }
    }

    /// The file that defines what `path` names. `None` for a name that is not of this package.
    fn definer(&self, path: &[String], depth: usize) -> Option<&File> {
        let mut own = Path::new();
        for (at, name) in path.iter().enumerate() {
            own.push(name.clone());
            if self.files.contains_key(&own) {
                continue;
            }
            own.pop();
            let file = self.files.get(&own)?;
            if depth == 0 || file.items.contains(name) {
                return Some(file);
            }
            if let Some(bound) = file.bound.get(name) {
                return self.definer(&[bound, &path[at + 1..]].concat(), depth - 1);
            }
            let through = |glob: &&Path| {
                let file = self.definer(glob, depth - 1)?;
                (file.items.contains(name) || file.bound.contains_key(name)).then_some(())?;
                self.definer(&[glob, &path[at..]].concat(), depth - 1)
            };
            return file.globs.iter().find_map(|glob| through(&glob)).or(Some(file));
        }
        self.files.get(&own)
    }

    /// Every import of one file of the package by another.
    pub(crate) fn imports(&self) -> Imports {
        let of = |file: &File| -> Vec<(String, String)> {
            let used = file.named.iter().filter_map(|path| self.definer(path, 9)).map(|used| used.path.clone());
            used.filter(|used| *used != file.path).map(|used| (file.path.clone(), used)).collect()
        };
        self.files.values().flat_map(of).collect()
    }

    /// Where a file imports all names of a module that is not inside it, which hides the names that the file uses.
    pub(crate) fn globs(&self) -> Vec<String> {
        let of = |(own, file): (&Path, &File)| -> Vec<String> {
            let used = file.globs.iter().filter(|path| !path.starts_with(own)).filter_map(|path| self.files.get(path));
            used.map(|used| format!("{}: imports all of {}", file.path, used.path)).collect()
        };
        self.files.iter().flat_map(of).collect()
    }

    /// The modules that import each other in a circle, with everything inside them: modules of one parent.
    pub(crate) fn circles(&self) -> Vec<String> {
        let module = |path: &str| self.files.iter().find(|(_, file)| file.path == path).map(|(module, _)| module);
        let mut by_modules = BTreeMap::<(Path, Path), Vec<String>>::new();
        for (from, to) in self.imports() {
            let (Some(of), Some(used)) = (module(&from), module(&to)) else { continue };
            let equal = of.iter().zip(used).take_while(|(of, used)| of == used).count();
            if equal < of.len().min(used.len()) {
                let siblings = (of[..=equal].to_vec(), used[..=equal].to_vec());
                by_modules.entry(siblings).or_default().push(format!("{from} imports {to}"));
            }
        }
        let circles = in_circles(by_modules.keys().cloned().collect());
        circles.into_iter().flat_map(|siblings| by_modules[&siblings].clone()).collect()
    }
}

/// The imports that are part of a circle, of any length, or lead from one circle to another.
pub(crate) fn in_circles<T: Ord + Clone>(mut imports: BTreeSet<(T, T)>) -> BTreeSet<(T, T)> {
    loop {
        let importers: BTreeSet<T> = imports.iter().map(|(from, _)| from.clone()).collect();
        let imported: BTreeSet<T> = imports.iter().map(|(_, to)| to.clone()).collect();
        let before = imports.len();
        imports.retain(|(from, to)| imported.contains(from) && importers.contains(to));
        if imports.len() == before {
            return imports;
        }
    }
}

/// The includes of a file: the name, and whether in quotes.
pub(crate) fn includes(source: &str) -> Vec<(String, bool)> {
    let include = |line: &str| {
        let name = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
        let (quoted, end) = match name.chars().next()? {
            '"' => (true, '"'),
            '<' => (false, '>'),
            _ => return None,
        };
        Some((name[1..].split(end).next()?.to_owned(), quoted))
    };
    source.lines().filter_map(include).collect()
}

/// The imports between the files of C++ and the bridges of Rust. A bridge of Rust contains `include!`; C++ includes the
/// header that is made from a bridge.
pub(crate) fn across(files: &[(String, String)]) -> Imports {
    let known = |path: &str| files.iter().any(|(file, _)| file == path).then(|| path.to_owned());
    let mut imports = Imports::new();
    for (path, source) in files {
        let bridge = |line: &str| line.trim().strip_prefix("include!(\"")?.strip_suffix("\");").map(str::to_owned);
        let included: Vec<String> = match path.ends_with(".rs") {
            true => source.lines().filter_map(bridge).collect(),
            false => includes(source).into_iter().map(|(name, _)| name).collect(),
        };
        for name in included {
            let inside = name.strip_prefix("symmetra/").unwrap_or_default();
            let inside = inside.strip_suffix(".h").filter(|path| path.ends_with(".rs")).unwrap_or(inside);
            let used = known(&name).or_else(|| known(inside)).or_else(|| known(&format!("include/{name}")));
            imports.extend(used.map(|used| (path.clone(), used)));
        }
    }
    imports
}

/// Reads one file.
struct Reader {
    file: File,
    /// The module, with modules inside the file.
    own: Path,
    /// The files that are modules of this one.
    children: BTreeSet<String>,
    /// How deep the module of the file is.
    file_depth: usize,
    /// The depth of braces at which each module inside the file ends.
    inner: Vec<usize>,
}

impl Reader {
    fn new(path: &str, own: Path, children: BTreeSet<String>) -> Self {
        let file = File {
            path: path.to_owned(),
            bound: BTreeMap::new(),
            globs: Vec::new(),
            items: BTreeSet::new(),
            named: Vec::new(),
        };
        Self { file, file_depth: own.len(), own, children, inner: Vec::new() }
    }

    fn read(mut self, tokens: &[&str]) -> File {
        // Names are bound for the whole file, also before the `use`.
        let mut paths: Vec<(Path, Path)> = Vec::new();
        let (mut at, mut depth) = (0, 0);
        while let Some(token) = tokens.get(at) {
            let next = tokens.get(at + 1).copied().unwrap_or_default();
            match *token {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    if self.inner.last() == Some(&depth) {
                        self.inner.pop();
                        self.own.pop();
                    }
                }
                "use" if next != "<" => at = self.import(tokens, at + 1, &Path::new()),
                "mod" if tokens.get(at + 2) == Some(&"{") => {
                    self.file.items.insert(next.to_owned());
                    self.own.push(next.to_owned());
                    self.inner.push(depth);
                }
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" | "macro_rules"
                    if depth == self.inner.last().map_or(0, |outer| outer + 1) =>
                {
                    self.file.items.extend(tokens[at + 1..].iter().take(2).map(|name| (*name).to_owned()));
                }
                // A path from `$crate` belongs to the place where the macro is used, which may be another package.
                first
                    if next == "::"
                        && first.starts_with(word)
                        && (at == 0 || !["::", "$"].contains(&tokens[at - 1])) =>
                {
                    let mut path = vec![first.to_owned()];
                    while tokens.get(at + 1) == Some(&"::")
                        && tokens.get(at + 2).is_some_and(|name| name.starts_with(word))
                    {
                        at += 2;
                        path.push(tokens[at].to_owned());
                    }
                    paths.push((self.own.clone(), path));
                }
                _ => {}
            }
            at += 1;
        }
        for (own, path) in paths {
            if let Some(absolute) = self.absolute(&own, &path) {
                self.file.named.push(absolute);
            }
        }
        self.file
    }

    /// Reads a tree of `use` from `at` on, below `before`. Returns where the tree ends: at a comma, a brace, or the end.
    fn import(&mut self, tokens: &[&str], mut at: usize, before: &Path) -> usize {
        let mut path = before.clone();
        let mut name = None;
        loop {
            match tokens[at] {
                "{" => loop {
                    at = self.import(tokens, at + 1, &path);
                    match tokens[at] {
                        "}" => return at + 1,
                        _ => continue,
                    }
                },
                "*" => {
                    if let Some(absolute) = self.absolute(&self.own, &path) {
                        self.file.globs.push(absolute.clone());
                        self.file.named.push(absolute);
                    }
                    return at + 1;
                }
                "as" => {
                    name = Some(tokens[at + 1].to_owned());
                    at += 1;
                }
                "::" => {}
                "," | "}" | ";" => break,
                "self" if !path.is_empty() => {}
                word => path.push(word.to_owned()),
            }
            at += 1;
        }
        let names = path.len() > before.len() || name.is_some() || tokens[at - 1] == "self";
        if let Some(absolute) = self.absolute(&self.own, &path).filter(|_| names) {
            let name = name.or_else(|| path.last().cloned()).unwrap_or_default();
            self.file.named.push(absolute.clone());
            self.file.bound.insert(name, absolute);
        }
        at
    }

    /// The path from the root of the package. `None` where the path begins with the name of a type or of another package.
    fn absolute(&self, own: &Path, path: &[String]) -> Option<Path> {
        let (mut base, mut rest) = match path.first()?.as_str() {
            "crate" => (Path::new(), &path[1..]),
            "self" => (own.clone(), &path[1..]),
            "super" => (own.clone(), path),
            first => {
                let file = &own[..self.file_depth];
                let bound = self.file.bound.get(first).cloned();
                let child = || self.children.contains(first).then(|| [file, &path[..1]].concat());
                (bound.or_else(child)?, &path[1..])
            }
        };
        while rest.first().is_some_and(|name| name == "super") {
            base.pop();
            rest = &rest[1..];
        }
        Some([&base, rest].concat())
    }
}

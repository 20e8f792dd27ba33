package runtimes

import (
	"maps"
	"slices"
)

// Images of the built-in runtimes.
const (
	pythonImage = "python:3.12-slim"
	nodeImage   = "node:20-slim"
)

const (
	// nodeWorkDir is where npm installs, since Node looks for modules from there up.
	nodeWorkDir   = "/app"
	sourceWorkDir = "/src"
)

// builtins are the runtimes that have a name. Names are stored in people's
// configurations: one that was released stays.
func builtins() map[string]Runtime {
	python := func(description string, packages ...string) Runtime {
		return Runtime{Description: description, BaseImage: pythonImage, Packages: packages}
	}
	node := func(description string, packages ...string) Runtime {
		return Runtime{Description: description, BaseImage: nodeImage, PackageManager: Npm, Packages: packages, WorkDir: nodeWorkDir}
	}
	ready := func(description, image, workDir string) Runtime {
		return Runtime{Description: description, Image: image, WorkDir: workDir}
	}

	coding := python("Python with uv, and the tools to look at code: git, curl, ripgrep, fd, jq, less, ps", "uv")
	coding.SetupCommands = []string{
		aptInstall("git", "curl", "ca-certificates", "ripgrep", "fd-find", "jq", "less", "procps") +
			// Debian's fd has another name, since an older program has that one.
			" && ln -s /usr/bin/fdfind /usr/local/bin/fd",
	}
	polyglot := python("Python and Node with npm, git and curl; numpy, DuckDB, Polars, httpx", "numpy", "duckdb", "polars", "httpx")
	polyglot.SetupCommands = []string{aptInstall("git", "curl", "ca-certificates", "nodejs", "npm")}

	all := map[string]Runtime{
		"coding":             coding,
		"polyglot":           polyglot,
		"python-minimal":     ready("Python and its standard library", pythonImage, ""),
		"python-datascience": python("pandas, numpy, matplotlib, scikit-learn, seaborn", "pandas", "numpy", "matplotlib", "scikit-learn", "seaborn"),
		"python-analytics":   python("DuckDB, Polars, PyArrow: tables in little memory", "duckdb", "polars", "pyarrow"),
		"python-web":         python("FastAPI, Uvicorn, SQLAlchemy, httpx", "fastapi", "uvicorn", "sqlalchemy", "httpx"),
		"python-scraping":    python("httpx, Beautiful Soup, lxml, markdownify", "httpx", "beautifulsoup4", "lxml", "markdownify"),
		"python-documents":   python("PDF, Word, Excel and pictures: pypdf, python-docx, openpyxl, Pillow", "pypdf", "python-docx", "openpyxl", "pillow"),
		"node-minimal":       ready("Node and npm", nodeImage, nodeWorkDir),
		"node-typescript":    node("TypeScript, tsx, Vitest", "typescript", "tsx", "vitest"),
		"node-react":         node("TypeScript, Vite, React", "typescript", "vite", "react", "react-dom", "@types/react"),
		"bun":                ready("Bun", "oven/bun:1-slim", nodeWorkDir),
		"deno":               ready("Deno", "denoland/deno:debian", nodeWorkDir),
		"go":                 ready("Go, with git and a C compiler", "golang:1.26", sourceWorkDir),
		"rust":               ready("Rust and Cargo", "rust:1-slim", sourceWorkDir),
	}
	for name, r := range all {
		r.Name = name
		all[name] = r.withDefaults()
	}
	return all
}

func builtin(name string) (Runtime, bool) {
	r, ok := builtins()[name]
	return r, ok
}

// Names returns the names of the built-in runtimes, sorted.
func Names() []string { return slices.Sorted(maps.Keys(builtins())) }

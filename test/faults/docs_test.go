package faults_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// The page names for each fault what the host does about it, and tests that are there.
func TestThePageOfFaultsIsTrue(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	page, err := os.ReadFile(filepath.Join(docs, "faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\[((?:Test|Fuzz)\w+)\]\(([^)]+)\)`)
	told := map[int]int{} // tests by fault
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|.*$`).FindAllStringSubmatch(string(page), -1) {
		number, err := strconv.Atoi(row[1])
		if err != nil {
			t.Fatal(err)
		}
		told[number] += len(named.FindAllString(row[0], -1))
	}
	const last, none = 25, 23 // there is none of that number
	for number := 1; number <= last; number++ {
		if number != none && told[number] == 0 {
			t.Errorf("fault %d has no test", number)
		}
	}
	files := map[string]map[string]bool{}
	for _, test := range named.FindAllStringSubmatch(string(page), -1) {
		name, file := test[1], filepath.Join(docs, filepath.FromSlash(test[2]))
		if files[file] == nil {
			files[file] = functions(t, file)
		}
		if !files[file][name] {
			t.Errorf("%s has no %s", file, name)
		}
	}
}

// functions are those of a file that have no receiver.
func functions(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Error(err)
		return map[string]bool{}
	}
	names := map[string]bool{}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
			names[f.Name.Name] = true
		}
	}
	return names
}

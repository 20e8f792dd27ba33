package host

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxDepth is deeper than any configuration nests.
const maxDepth = 64

// decoder walks the syntax tree itself: so that every error has its key and
// line, and none repeats a value, which may be a secret (contract B7).
type decoder struct {
	source *source
	lookup func(string) (string, bool)
	depth  int
}

// quoted is what a message of the YAML library may repeat of the file.
var quoted = regexp.MustCompile("\"[^\"]*\"|'[^']*'|`[^`]*`")

// parse returns the root of the one document, nil if that is empty.
func (d *decoder) parse(data []byte) (node ast.Node, err error) {
	defer func() {
		if r := recover(); r != nil { // the library's own fault, on input that no one writes
			node, err = nil, &ConfigError{File: d.source.file, Reason: "is not YAML that can be read"}
		}
	}()
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		fault := &ConfigError{File: d.source.file, Reason: "is not YAML"}
		var syntax yaml.Error
		if errors.As(err, &syntax) {
			fault.Reason += ": " + quoted.ReplaceAllString(syntax.GetMessage(), "…")
			if token := syntax.GetToken(); token != nil && token.Position != nil {
				fault.Line = token.Position.Line
			}
		}
		return nil, fault
	}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if node != nil {
			return nil, &ConfigError{File: d.source.file, Line: line(doc.Body), Reason: "a second document: want one"}
		}
		node = doc.Body
	}
	return node, nil
}

func line(node ast.Node) int {
	if node == nil {
		return 0
	}
	if token := node.GetToken(); token != nil && token.Position != nil {
		return token.Position.Line
	}
	return 0
}

// mapping calls each for every key with its path. Null is an empty one.
func (d *decoder) mapping(path string, node ast.Node, each func(key, path string, value ast.Node) error) error {
	var values []*ast.MappingValueNode
	switch n := node.(type) {
	case nil, *ast.NullNode:
		return nil
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return d.wrongType(path, node, "a mapping")
	}
	if d.depth++; d.depth > maxDepth {
		return d.source.fault(path, fmt.Sprintf("is nested more than %d levels deep", maxDepth))
	}
	defer func() { d.depth-- }()
	first := make(map[string]int, len(values))
	for _, value := range values {
		name, ok := value.Key.(*ast.StringNode)
		if !ok {
			return d.at(path, value.Key, "has a key that is no string: quote it")
		}
		below := join(path, name.Value)
		if at, ok := first[name.Value]; ok {
			return d.at(below, value.Key, fmt.Sprintf("is there twice, first at line %d: remove one", at))
		}
		first[name.Value] = line(value.Key)
		d.source.lines[below] = line(value.Key)
		if err := each(name.Value, below, value.Value); err != nil {
			return err
		}
	}
	return nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// at is a fault at a node's own line, which has no path of its own.
func (d *decoder) at(path string, node ast.Node, reason string) *ConfigError {
	return &ConfigError{File: d.source.file, Line: line(node), Key: path, Reason: reason}
}

func (d *decoder) wrongType(path string, node ast.Node, want string) error {
	return d.at(path, node, fmt.Sprintf("want %s, not %s", want, kindOf(node)))
}

// kindOf names what a node is, as people say.
func kindOf(node ast.Node) string {
	switch node.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a string"
	case *ast.BoolNode:
		return "true or false"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias"
	case *ast.TagNode:
		return "a tag"
	}
	return "something else"
}

func isNull(node ast.Node) bool {
	_, null := node.(*ast.NullNode)
	return node == nil || null
}

// scalarString returns a string as it stands in the file.
func scalarString(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}

// string reads a string and expands variables in it.
func (d *decoder) string(path string, node ast.Node) (string, error) {
	text, ok := scalarString(node)
	if !ok {
		return "", d.wrongType(path, node, "a string")
	}
	expanded, err := expand(text, d.lookup)
	if err != nil {
		return "", d.at(path, node, err.Error())
	}
	return expanded, nil
}

func (d *decoder) strings(path string, node ast.Node) ([]string, error) {
	list, ok := node.(*ast.SequenceNode)
	if !ok {
		return nil, d.wrongType(path, node, "a list of strings")
	}
	out := make([]string, 0, len(list.Values))
	for i, value := range list.Values {
		text, err := d.string(join(path, strconv.Itoa(i)), value)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}

// value reads anything that JSON can say.
func (d *decoder) value(path string, node ast.Node) (any, error) {
	switch n := node.(type) {
	case nil, *ast.NullNode:
		return nil, nil
	case *ast.StringNode, *ast.LiteralNode:
		return d.string(path, node)
	case *ast.BoolNode:
		return n.Value, nil
	case *ast.IntegerNode:
		return n.Value, nil
	case *ast.FloatNode:
		return n.Value, nil
	case *ast.SequenceNode:
		if d.depth++; d.depth > maxDepth {
			return nil, d.source.fault(path, fmt.Sprintf("is nested more than %d levels deep", maxDepth))
		}
		defer func() { d.depth-- }()
		list := make([]any, 0, len(n.Values))
		for i, value := range n.Values {
			below := join(path, strconv.Itoa(i))
			d.source.lines[below] = line(value)
			v, err := d.value(below, value)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case *ast.MappingNode, *ast.MappingValueNode:
		object := make(map[string]any)
		err := d.mapping(path, node, func(key, path string, value ast.Node) (err error) {
			object[key], err = d.value(path, value)
			return err
		})
		return object, err
	}
	return nil, d.wrongType(path, node, "a string, a number, true or false, a list or a mapping")
}

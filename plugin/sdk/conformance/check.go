package conformance

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/berth-dev/berth/shared/workspace"
)

// check is one promise of one rule.
type check struct {
	// name begins with the rule's id.
	name string
	// needs are the features without which there is nothing to check.
	needs []workspace.Feature
	// hooks are what the test must be able to do.
	hooks []hook
	run   func(t testing.TB, e *env)
}

// hook is an option that some checks need.
type hook struct {
	name  string
	given func(*Options) bool
}

var (
	needOtherHost    = hook{"OtherHost", func(o *Options) bool { return o.OtherHost != nil }}
	needStarted      = hook{"Started", func(o *Options) bool { return o.Started != nil }}
	needRestart      = hook{"Restart", func(o *Options) bool { return o.Restart != nil }}
	needStop         = hook{"Stop", func(o *Options) bool { return o.Stop != nil }}
	needReconfigured = hook{"Reconfigured", func(o *Options) bool { return o.Reconfigured != nil }}
	needReplace      = hook{"Replace", func(o *Options) bool { return o.Replace != nil }}
	needElsewhere    = hook{"Elsewhere", func(o *Options) bool { return o.Elsewhere != nil }}
	needConfigured   = hook{"Configured", func(o *Options) bool { return o.Configured != nil }}
	needFailCreates  = hook{"FailCreates", func(o *Options) bool { return o.FailCreates != nil }}
	needSlowCreates  = hook{"SlowCreates", func(o *Options) bool { return o.SlowCreates != nil }}
	needEnv          = hook{"Env", func(o *Options) bool { return len(o.Env) > 0 }}
)

// Features that most checks need.
var (
	commands = []workspace.Feature{workspace.FeatureCommands}
	files    = []workspace.Feature{workspace.FeatureFiles}
	both     = []workspace.Feature{workspace.FeatureCommands, workspace.FeatureFiles}
)

func filesAnd(features ...workspace.Feature) []workspace.Feature {
	return append(slices.Clone(files), features...)
}

func hooks(h ...hook) []hook { return h }

// checks returns the whole suite in the order of the contract.
func checks() []check {
	all := slices.Concat(
		createChecks(), attachChecks(), nameChecks(), endChecks(),
		argvChecks(), startChecks(), exitChecks(), outputChecks(), timeoutChecks(), cancelChecks(), limitChecks(),
		backgroundChecks(), environmentChecks(), concurrencyChecks(),
		pathChecks(), writeChecks(), fileErrorChecks(), infoChecks(), listChecks(), treeChecks(), realPathChecks(), streamChecks(),
		togetherChecks(), optionalChecks(),
		runChecks(),
	)
	slices.SortStableFunc(all, func(a, b check) int { return compareRules(ruleOf(a.name), ruleOf(b.name)) })
	return all
}

func ruleOf(name string) string {
	rule, _, _ := strings.Cut(name, "_")
	return rule
}

// compareRules puts L before C before F before B, and C2 before C10.
func compareRules(a, b string) int {
	const order = "LCFB"
	na, _ := strconv.Atoi(a[1:])
	nb, _ := strconv.Atoi(b[1:])
	return cmp.Or(strings.IndexByte(order, a[0])-strings.IndexByte(order, b[0]), na-nb)
}

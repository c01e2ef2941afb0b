// Upstream's end-to-end specs of sig-scheduling and nothing else, as one program: what upstream's own
// test/e2e/e2e_test.go does, without the imports of the other groups.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	e2etestingmanifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	imageutils "k8s.io/kubernetes/test/utils/image"

	// Prepares the cluster before the first spec.
	_ "k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/e2e/feature"
	_ "k8s.io/kubernetes/test/e2e/scheduling"

	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	_ "k8s.io/kubernetes/test/utils/format"
)

// The exit code of the program reports failures.
type failures struct{}

func (failures) Fail() {}

func main() {
	images := flag.Bool("images", false, "print the names of the images pause and agnhost, and end")
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	if *images {
		fmt.Println(imageutils.GetPauseImageName())
		fmt.Println(imageutils.GetE2EImage(imageutils.Agnhost))
		return
	}
	testfiles.AddFileSource(e2etestingmanifests.GetE2ETestingManifestsFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	logs.InitLogs()
	defer logs.FlushLogs()
	klog.EnableContextualLogging(true)
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	if !ginkgo.RunSpecs(failures{}, "sig-scheduling", suite, reporter) {
		logs.FlushLogs()
		os.Exit(1)
	}
}

#include "membership/secret.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text_matchers.hpp"

namespace ciranda {
namespace {

const std::string kDigits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1F";

std::string write_file(const std::string& text, mode_t mode) {
  std::string path = ::testing::TempDir() + "/ciranda_secret_XXXXXX";
  const int fd = mkstemp(path.data());
  EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  fchmod(fd, mode);
  close(fd);
  return path;
}

TEST(Secret, IsReadFromAPrivateFile) {
  const std::string path = write_file(kDigits + "\n", 0600);
  const auto secret = read_secret(path);
  ASSERT_TRUE(secret.ok()) << secret.status().message();
  for (std::size_t i = 0; i < secret.value().size(); ++i) {
    EXPECT_EQ(std::to_integer<std::size_t>(secret.value()[i]), i);
  }
  unlink(path.c_str());
}

TEST(Secret, IsReadFromAnInheritedPipe) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], kDigits.data(), kDigits.size()), static_cast<ssize_t>(kDigits.size()));
  close(ends[1]);
  EXPECT_TRUE(read_secret("/dev/fd/" + std::to_string(ends[0])).ok());
  close(ends[0]);
}

TEST(Secret, OthersMayNotReadTheFile) {
  for (const mode_t mode : {0640U, 0604U, 0660U, 0620U}) {
    const std::string path = write_file(kDigits, mode);
    const auto secret = read_secret(path);
    EXPECT_EQ(secret.status().kind(), ErrorKind::kInvalidArgument);
    EXPECT_TRUE(contains(secret.status().message(), "chmod 600 " + path));
    unlink(path.c_str());
  }
}

TEST(Secret, MalformedIsRefusedAndNotShown) {
  for (const std::string& text : {std::string(), kDigits.substr(1), kDigits + "0", kDigits.substr(1) + "g",
                                  kDigits + kDigits + kDigits, std::string(64, ' ')}) {
    const std::string path = write_file(text, 0600);
    const auto secret = read_secret(path);
    EXPECT_FALSE(secret.ok()) << text;
    EXPECT_TRUE(contains(secret.status().message(), "64 hexadecimal digits"));
    EXPECT_FALSE(contains(secret.status().message(), kDigits.substr(10, 10)));
    unlink(path.c_str());
  }
  EXPECT_FALSE(read_secret("/nosuch/file").ok());
}

}  // namespace
}  // namespace ciranda

# Calls many functions of the C library.
use POSIX ();
my @numbers = sort map { sprintf "%x %.3e %s", $_ * 7, $_ / 3, "x" x $_ } 1 .. 9;
my $text = join ",", @numbers, scalar gmtime(0), POSIX::strftime("%A %j", gmtime(86400)), getpwuid(0), getgrgid(0);
my ($number, $left) = POSIX::strtod("1.5e3abc");
open(my $file, "<", $0) or die;
my @lines = <$file>;
close $file;
opendir(my $folder, "/") or die;
my @entries = sort readdir $folder;
closedir $folder;
local $ENV{TZ} = "UTC";
print length($text) + @lines, " ", lc("ABC") cmp uc("abc"), " ", index($text, "b"), " $number $left ", POSIX::setlocale(0, "C"), "\n";
print -e "/", " ", -s $0, " ", POSIX::floor(2.5), " ", (stat "/")[2], "\n";
exit 0;
